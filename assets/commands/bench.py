"""The verb `bench`: a stage against its peer, alternated in one run."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from assets.commands.session import configuration, mill_for, open_inputs
from pipeline.errors import UsageError


def bench(arguments: argparse.Namespace) -> dict[str, Any]:
    """`gristmill bench STAGE [--against PEER] [--rounds N] [IN...]`."""
    from assets.bench.contests import check_peer, find_contest
    from assets.bench.material import make
    from assets.bench.rounds import hold

    config = configuration(arguments)
    contest = find_contest(arguments.stage, arguments.against)
    if arguments.rounds < 1:
        message = f"--rounds {arguments.rounds} is no number of rounds"
        raise UsageError(message, hint="1 or more; 3 shows the spread")
    check_peer(contest)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as name:
        say(f"preparing {'the given input' if arguments.inputs else 'the sample of the demo'}")

        def read(paths: list[Path]) -> Any:
            import polars as pl

            with mill_for(arguments, config, name) as mill:
                frames = [source.load().value for source in open_inputs(mill, paths).sources]
            return pl.concat(frames, how="diagonal_relaxed")

        make(Path(name), contest.needs, arguments.inputs, config, read)
        result = hold(contest, Path(name), arguments.rounds, say)
    if not arguments.json:
        print_result(result)
    return result


def print_result(result: dict[str, Any]) -> None:
    """The result as a small table."""
    details = result["details"]
    print(
        f"{result['stage']} against {result['peer']}: {details['documents']:,} documents, "
        f"{details['bytes'] / 1e6:.1f} MB, {result['rounds']} rounds"
    )
    print(f"  {details['compared']}; {details['clock']}")
    print(f"  {'':<14}{'docs/s':>12}{'MB/s':>10}{'peak MiB':>10}")
    for side, label in (("ours", "gristmill"), ("theirs", result["peer"])):
        found = result[side]
        tokens = f"{found['tokens_per_s']:>12,.0f} tokens/s" if "tokens_per_s" in found else ""
        print(
            f"  {label:<14}{found['docs_per_s']:>12,.1f}{found['mb_per_s']:>10,.2f}"
            f"{found['peak_mib']:>10,.0f}{tokens}"
        )
    print(f"  {'ratio':<14}{_spread(result['ratio'])}")
    if "warm" in details:
        print(f"  {'ratio, warm':<14}{_spread(details['warm']['ratio'])}")
    print(f"  {'agree':<14}" + ", ".join(f"{k} {v}" for k, v in result["agree"].items()))


def _spread(ratio: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.2f}" for name, value in ratio.items())
