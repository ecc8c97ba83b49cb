"""The data stages of Gristmill, in order: what goes in, what comes out, where it lives.

    snapshots       WARC listing -> files with checksums, cut into groups       snapshots.py
    extracted_text  WARC -> main text of each HTML record                       warc.py extract.py
    filtered_text   text -> text in wanted languages that passes the rules      language.py filters/
    scored_text     text -> the same with quality score and split               quality/
    deduped_corpus  text -> one copy of each                                    dedup/
    scrubbed_corpus text -> text without personal data                          scrub/
    source_texts    JSONL of code, books, papers -> the same columns            sources.py
    tokenizer       sample of text -> byte-level BPE                            tokenizer.py
    token_shards    text -> Megatron .bin/.idx with document ids                tokenize.py
    mixture         shards -> the training plan                                 mixture.py

Every stage is a function over one part (`part.py`) that the driver (`driver.py`) runs over all
parts (`inputs.py`) and commits (`commit.py`, `manifest.py`); `stages/` wires them, `mill.py` holds
what they are given, `trace.py` leads back. Nothing here imports Dagster, torch, mlflow or boto3.
"""
