"""The training plan: weights, caps, phases, refusals; sharing out by weights."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.mixture import MixtureConfig, Phase
from pipeline.errors import ConfigError, ContractError
from pipeline.manifest import Gate
from pipeline.mixture import ShardInfo, build_plan, shard_info
from pipeline.shares import allot


def shard(source: str, tokens: int, name: str | None = None, **other: Any) -> ShardInfo:
    name = name or f"{source}-00000-abc"
    fields: dict[str, Any] = {
        "name": name,
        "path": f"token_shards/{source}/{name}",
        "corpus": source,
        "source": source,
        "split": "train",
        "tokens": tokens,
        "documents": 10,
        "vocab_size": 300,
        "tokenizer": "sha256:one",
        "languages": {"en": tokens},
        "checksums": {"bin": "sha256:b"},
    }
    return ShardInfo(**fields | other)


WEB, CODE = shard("web", 6000), shard("code", 2000)


def test_without_weights_everything_is_read_once_by_size() -> None:
    plan = build_plan([WEB, CODE], MixtureConfig())
    assert plan["total_tokens"] == 8000
    assert plan["sources"]["web"] == {
        "available_tokens": 6000,
        "documents": 10,
        "requested": 0.75,
        "realised": 0.75,
        "tokens": 6000,
        "epochs": 1.0,
    }
    shares = {"code": 0.25, "web": 0.75}
    assert plan["phases"] == [{"until_tokens": 8000, "weights": shares, "requested": shares}]
    assert plan["warnings"] == []
    assert Gate(**plan["gates"][0]).verdict == "pass"


def test_order_of_shards_does_not_matter_and_held_out_ones_are_listed_only() -> None:
    held = shard("web", 500, "web-00000-abc-held_out", split="held_out")
    plan = build_plan([WEB, held, CODE], MixtureConfig())
    assert plan == build_plan([CODE, WEB, held], MixtureConfig())
    assert plan["total_tokens"] == 8000
    names = [entry["name"] for entry in plan["shards"]]
    assert names == ["code-00000-abc", "web-00000-abc", "web-00000-abc-held_out"]
    assert plan["shards"][0]["path"] == "token_shards/code/code-00000-abc"
    assert "tokenizer" not in plan["shards"][0]


def test_a_small_source_ends_at_max_epochs_and_the_others_take_over() -> None:
    config = MixtureConfig(weights={"web": 1, "code": 1}, total_tokens=20_000, max_epochs=4)
    plan = build_plan([WEB, CODE], config)
    assert plan["sources"]["code"]["tokens"] == 8000
    assert plan["sources"]["code"]["epochs"] == 4.0
    assert plan["sources"]["web"]["tokens"] == 12_000
    gate = plan["gates"][0]
    assert (gate["verdict"], gate["value"]) == ("fail", 0.1)
    assert plan["warnings"] == [
        "code was asked for 50.0% of the tokens and gives 40.0%: it ends at mixture.max_epochs"
    ]


def test_gate_passes_just_within_the_tolerance() -> None:
    config = MixtureConfig(
        weights={"web": 1, "code": 1}, total_tokens=20_000, max_epochs=4, tolerance=0.1
    )
    assert build_plan([WEB, CODE], config)["gates"][0]["verdict"] == "pass"


def test_more_than_four_passes_are_allowed_on_demand_and_warned_of() -> None:
    config = MixtureConfig(weights={"code": 1}, total_tokens=10_000, max_epochs=5)
    plan = build_plan([WEB, CODE], config)
    assert plan["sources"]["code"]["epochs"] == 5.0
    assert plan["warnings"][0].startswith("code is read 5.0 times; beyond 4 passes")
    assert plan["warnings"][1] == "web (6000 tokens) has no weight: it is not read"


def test_phases_have_weights_of_their_own_and_share_the_limits() -> None:
    phases = [
        Phase(until_tokens=6000, weights={"web": 9, "code": 1}),
        Phase(until_tokens=8000, weights={"code": 1}),
    ]
    plan = build_plan([WEB, CODE], MixtureConfig(phases=phases, max_epochs=1.3))
    assert [phase["weights"] for phase in plan["phases"]] == [
        {"code": 0.1, "web": 0.9},
        {"code": 1.0, "web": 0.0},
    ]
    assert plan["sources"]["code"]["tokens"] == 2600
    assert plan["sources"]["code"]["requested"] == plan["sources"]["code"]["realised"] == 0.325
    with pytest.raises(ConfigError, match=r"8000 tokens, but 1 passes .* give 7400"):
        build_plan([WEB, CODE], MixtureConfig(phases=phases, max_epochs=1))


def test_total_tokens_cuts_the_phases() -> None:
    phases = [Phase(until_tokens=n, weights={"web": 1}) for n in (1000, 2000, 3000)]
    plan = build_plan([WEB, CODE], MixtureConfig(phases=phases, total_tokens=1500))
    assert [phase["until_tokens"] for phase in plan["phases"]] == [1000, 1500]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (MixtureConfig(weights={"wiki": 1}), "mixture.weights"),
        (
            MixtureConfig(phases=[Phase(until_tokens=9, weights={"wiki": 1})]),
            "mixture.phases.0.weights",
        ),
    ],
)
def test_an_unknown_source_is_named_with_the_known_ones(config: MixtureConfig, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_plan([WEB, CODE], config)
    assert caught.value.message == f"{key} names 'wiki', which is no source here"
    assert caught.value.hint == "the sources are code, web"


def test_shards_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ContractError, match="2 tokenizers"):
        build_plan([WEB, shard("code", 5, tokenizer="sha256:two")], MixtureConfig())
    with pytest.raises(ContractError, match="two shards are called web-00000-abc"):
        build_plan([WEB, shard("code", 5, "web-00000-abc")], MixtureConfig())
    for none in ([], [shard("web", 5, split="held_out")], [shard("web", 0)]):
        with pytest.raises(ContractError, match="no token shards to train on"):
            build_plan(none, MixtureConfig())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"phases": [{"until_tokens": 5, "weights": {}}] * 2}, "one after the other"),
        ({"phases": [{"until_tokens": 5, "weights": {}}], "weights": {"a": 1}}, "cannot both"),
        ({"phases": [{"until_tokens": 5, "weights": {}}], "total_tokens": 6}, "last phase"),
        ({"weights": {"a": -1}}, "not negative"),
        ({"max_epochs": 0}, "greater than 0"),
    ],
)
def test_absurd_configurations_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        MixtureConfig.model_validate(values)


def test_shard_info_reads_a_sidecar() -> None:
    sidecar = {
        "name": "n", "source": "web", "split": "train", "tokens": 3, "documents": 1,
        "vocab_size": 300, "tokenizer": "sha256:one", "checksums": {"bin": "x"},
        "languages": {"en": {"tokens": 3, "documents": 1, "bytes": 9}},
    }  # fmt: skip
    info = shard_info("token_shards/A/n", sidecar, "A")
    assert (info.corpus, info.path, info.languages) == ("A", "token_shards/A/n", {"en": 3})


amounts = st.integers(0, 1000).map(float)


@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=6), st.integers(1, 3000))
def test_allot_keeps_limits_and_gives_what_there_is(
    takers: list[tuple[float, float]], total: int
) -> None:
    weights = {str(i): weight for i, (weight, _) in enumerate(takers)}
    limits = {str(i): limit for i, (_, limit) in enumerate(takers)}
    given_out = allot(total, weights, limits)
    most = sum(limits[name] for name, weight in weights.items() if weight)
    assert sum(given_out.values()) == pytest.approx(min(total, most))
    assert all(given_out[name] <= limits[name] + 1e-9 for name in weights)
    free = [n for n in weights if weights[n] and given_out[n] < limits[n] - 1e-6]
    scales = [given_out[name] / weights[name] for name in free]
    assert scales == pytest.approx([scales[0]] * len(scales) if scales else [])
