"""The sample crawl of `gristmill demo`: two overlapping snapshots built from installed text."""
