"""The graph as a person sees it in the web UI, and what loading it must not cost."""

import subprocess
import sys

import dagster as dg
import pytest

from assets.automation import JOB_ASSETS
from assets.checks import CURES, DESCRIPTIONS, WATCHED
from assets.definitions import defs
from assets.materialise import code_version
from assets.partitions import CORPORA, RUNS, SNAPSHOTS, SOURCES

GROUPS = {
    "crawl": {"snapshots", "extracted_text"},
    "curation": {
        "filtered_text", "scored_text", "deduped_corpus", "scrubbed_corpus", "source_texts",
        "what_if",
    },
    "references": {
        "quality_labels", "quality_classifier", "selection", "benchmark_sets", "word_lists",
    },
    "tokens": {"tokenizer_sample", "tokenizer", "token_shards", "mixture"},
    "model": {"checkpoints", "evaluation", "hf_model", "benchmark_scores"},
}  # fmt: skip
PARTITIONS = {
    SNAPSHOTS: {"snapshots", "extracted_text", "filtered_text", "scored_text", "deduped_corpus",
                "scrubbed_corpus"},
    SOURCES: {"source_texts"},
    CORPORA: {"token_shards"},
    RUNS: {"checkpoints", "evaluation", "hf_model", "benchmark_scores"},
}  # fmt: skip
HEAVY = (
    "torch", "mlflow", "ray", "numba", "matplotlib", "trafilatura", "spacy", "fasttext",
    "transformers", "tokenizers", "datasketch", "boto3",
)  # fmt: skip

GRAPH = defs.resolve_asset_graph()
KEYS = sorted(key.to_user_string() for key in GRAPH.get_all_asset_keys())


def node(name: str):
    return GRAPH.get(dg.AssetKey(name))


def test_the_assets_are_those_of_the_contract_in_their_groups() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == KEYS
    assert all(node(name).group_name == group for group, names in GROUPS.items() for name in names)


@pytest.mark.parametrize("name", KEYS)
def test_every_asset_has_what_a_person_wants_to_know(name: str) -> None:
    asset = node(name)
    assert asset.description
    assert all(word in asset.description for word in ("**In:**", "**Next:**"))
    assert asset.owners
    assert asset.kinds
    assert asset.code_version


def test_partition_sets() -> None:
    expected = {name: kind for kind, names in PARTITIONS.items() for name in names}
    for name in KEYS:
        assert node(name).partitions_def == expected.get(name), name


def test_deduped_corpus_declares_only_its_own_snapshot_and_runs_alone() -> None:
    asset = node("deduped_corpus")
    assert asset.parent_keys == {dg.AssetKey("scored_text")}
    assert asset.backfill_policy == dg.BackfillPolicy.single_run()
    assert asset.pools == {"dedup"}


def test_a_corpus_depends_on_the_same_key_of_either_kind() -> None:
    asset = node("token_shards")
    names = {key.to_user_string() for key in asset.parent_keys}
    assert names == {"scrubbed_corpus", "source_texts", "tokenizer"}
    for name in ("scrubbed_corpus", "source_texts"):
        mapping = asset.partition_mappings[dg.AssetKey(name)]
        assert isinstance(mapping, dg.IdentityPartitionMapping)


def test_every_gate_is_a_check_and_blocks_as_it_does() -> None:
    for name, watched in WATCHED.items():
        found = {key.name: GRAPH.get(key).blocking for key in node(name).check_keys}
        assert found == {**watched.gates, **dict.fromkeys(watched.asks, False)}, name
        assert set(found) <= set(DESCRIPTIONS)
        assert set(found) <= set(CURES)


def test_jobs_share_their_partitions_and_cover_every_asset() -> None:
    for name, assets in JOB_ASSETS.items():
        assert len({node(asset).partitions_def for asset in assets}) == 1, name
        assert defs.resolve_job_def(name)
    assert {asset for assets in JOB_ASSETS.values() for asset in assets} == set(KEYS) - {"what_if"}
    assert defs.resolve_job_def("mill_what_if")


def test_code_versions_come_from_the_stages() -> None:
    from pipeline.stages import corpus  # noqa: F401 (the stage exists)

    assert node("deduped_corpus").code_version == code_version("pipeline.dedup.run")
    with pytest.raises(AttributeError, match="no constant CODE_VERSION"):
        code_version("pipeline.errors")


def test_loading_the_graph_imports_nothing_heavy() -> None:
    code = (
        "import sys, assets.definitions as d; d.defs.get_repository_def();"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
