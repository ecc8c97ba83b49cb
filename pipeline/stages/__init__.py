"""The stages wired: for each, what it reads, which function it runs and which gates it writes.

    crawl.py       list_files  extract_text
    curation.py    filter_text  score_text  scrub_text
    corpus.py      dedup_corpus
    sources.py     source_texts
    references.py  quality_labels  quality_classifier  benchmark_sets  word_lists
    tokens.py      tokenizer_sample  tokenizer  token_shards
    mixture.py     mixture

Every function takes a `Mill` and a partition and returns the manifest it committed.
"""
