"""What another setting of the filter would do, answered from the stored signals.

question.py   which keys are asked about, and whether signals can tell
subjects.py   the filtered snapshots of a store, or one folder
part.py       one part decided twice, and the texts of its documents
tally.py      documents and bytes by language, host and rule, before and after
examples.py   newly dropped and rescued pages, with excerpts
answer.py     the parts of all snapshots, one after the other
"""
