#!/bin/sh
# Installs one group of packages into .venv, pinned by constraints.txt; a marker file makes the second
# call do nothing. Groups: core, dev, bench, browser.
set -eu
group=$1
venv=.venv
pip="$venv/bin/python -m pip --disable-pip-version-check"

install() { # install LABEL ARGUMENT...: a line of progress, pip's words only where it fails
    label=$1
    shift
    printf '%-34s' "  $label"
    begin=$(date +%s)
    if ! $pip install -q -c constraints.txt "$@" >"$venv/pip.log" 2>&1; then
        echo "failed"
        grep -v WARNING "$venv/pip.log" >&2
        exit 1
    fi
    echo "$(($(date +%s) - begin)) s"
}

pinned() { # the pinned requirement of each NAME
    for name in "$@"; do grep -i "^$name==" constraints.txt; done
}

case $group in
core)
    if [ ! -x "$venv/bin/python" ]; then "${PYTHON:-python3}" -m venv "$venv"; fi
    echo "setting up $venv (about 2 GB; 2 to 6 minutes the first time)"
    # exact pins, one group after the other: a range would make pip walk back through releases
    install "torch" $(pinned torch numpy)
    install "data: polars, arrow, numba, spacy" \
        $(pinned polars pyarrow numba datasketch xxhash zstandard brotli spacy icu4py fasttext-community phonenumbers)
    install "web: lexbor, trafilatura, resiliparse" \
        $(pinned selectolax lightgbm resiliparse trafilatura lxml_html_clean requests markdown-it-py docutils)
    install "model: tokenizers, transformers" $(pinned tokenizers transformers safetensors)
    install "graph: dagster" $(pinned dagster dagster-pipes dagster-webserver sqlalchemy)
    install "tracking: mlflow" $(pinned mlflow matplotlib boto3)
    install "gristmill itself" -e .
    printf '%-34s' "  language model lid.176"
    "$venv/bin/python" -m resources.references
    ;;
dev) install "tests, types, lint" -e ".[dev]" ;;
bench) install "peers" -e ".[bench]" ;;
browser)
    if ! command -v chromium >/dev/null 2>&1; then
        printf '%-34s' "  chromium"
        { apt-get update && apt-get install -y --no-install-recommends chromium; } >"$venv/apt.log" 2>&1 ||
            { echo "failed: install chromium by hand"; tail -5 "$venv/apt.log" >&2; exit 1; }
        echo "installed"
    fi
    ;;
*)
    echo "unknown group $group" >&2
    exit 2
    ;;
esac
touch "$venv/.$group"
