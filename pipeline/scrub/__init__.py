"""Scrubbing: personal data out of texts, texts of evaluation sets out of the corpus.

run.py             scrub_documents: one part
kinds.py           gates and finders of each kind     addresses.py   e-mail, IP
numbers.py         phone, card, IBAN                  keys.py        keys of services, private keys
replace.py         placeholders, fake values, the peer's rotating values; edited texts
decontaminate.py   word n-grams shared with benchmarks
"""
