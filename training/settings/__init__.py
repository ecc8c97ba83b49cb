"""Sections of a run file, one module each, beside what they configure by name. No torch here."""
