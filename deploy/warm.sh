#!/usr/bin/env bash
# Compiles the numba kernels by sending two small documents through the stages that have some, so
# that the first part of a fresh container does not pay for it (about half a minute).
# Kernels are cached per kind of CPU: another kind compiles again, once.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
line='The miller opens the gate, and the water turns the wheel until the evening comes. '
text=$(printf "$line%.0s" 1 2 3 4 5 6 7 8)
printf '{"id": "a", "text": "%s"}\n{"id": "b", "text": "%s Again."}\n' "$text" "$text" >"$folder/warm.jsonl"
gristmill filter "$folder/warm.jsonl" --out "$folder/filtered" --workers 1 >/dev/null
gristmill dedup "$folder/warm.jsonl" --out "$folder/deduped" --workers 1 >/dev/null
echo "kernels compiled in ${NUMBA_CACHE_DIR:-the packages}"
