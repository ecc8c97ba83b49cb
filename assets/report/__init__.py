"""The report of a run: one offline page, filled from manifests (`fill`) and drawn (`page`)."""
