"""Rules that decide which documents stay, one module a published source."""
