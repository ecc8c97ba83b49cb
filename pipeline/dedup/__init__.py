"""Deduplication: exact, then near-duplicates nominated by LSH and decided on text."""
