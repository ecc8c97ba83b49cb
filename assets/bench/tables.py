"""A result of `bench` as lines for a terminal, and as rows of a Markdown table."""

from typing import Any

Result = dict[str, Any]


def as_text(result: Result) -> list[str]:
    """For a person at a terminal."""
    if "sides" not in result:
        return [f"{key}: {value}" for key, value in flat(result).items()]
    details = result["details"]
    rounds = f"{result['rounds']} rounds" + (" that share the input" if details["shared"] else "")
    lines = [
        f"{result['stage']} against {details['peer_form']}: {details['documents']:,} documents, "
        f"{details['bytes'] / 1e6:.1f} MB, {rounds}",
        f"  {details['compared']}; {details['clock']}",
        f"  {'':<26}{'docs/s':>11}{'MB/s':>9}{'peak MiB':>10}   ratio min / median / max",
    ]
    for label, side in result["sides"].items():
        lines.append(
            f"  {label:<26}{side['docs_per_s']:>11,.1f}{side['mb_per_s']:>9,.2f}"
            f"{side['peak_mib']:>10,.0f}   {spread(side['ratio'])}"
        )
        for kind in ("figures", "agree"):
            if side.get(kind):
                lines.append(f"    {kind}: {listed(side[kind])}")
        if "scores" in side:
            lines.append(f"    scores: {listed(side['scores']['all']['shingles'])}")
    if "warm" in details:
        lines.append(f"  second run, everything learnt: ratio {spread(details['warm']['ratio'])}")
    if "accuracy" in result:
        lines += [f"  accuracy: {listed(row)}" for row in result["accuracy"]["sizes"]]
    return [*lines, f"  {listed(result['versions'])}"]


HEAD = (
    "| stage | against | docs/s | peer | MB/s | peak MiB | peer | ratio: min, median, max | same |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
)


def as_markdown(result: Result) -> list[str]:
    """Rows of the table in README, one a form of ours, with its head and the versions below."""
    if "sides" not in result:
        return [f"- {result['stage']}: {listed(flat(result))}"]
    details, theirs = result["details"], result["theirs"]
    rows = []
    for label, side in result["sides"].items():
        if not side["ours"]:
            continue
        cells = [
            result["stage"] + label.removeprefix("gristmill"),
            details["peer_form"],
            f"{side['docs_per_s']:,.1f}",
            f"{theirs['docs_per_s']:,.1f}",
            f"{side['mb_per_s']:,.2f}",
            f"{side['peak_mib']:,.0f}",
            f"{theirs['peak_mib']:,.0f}",
            spread(side["ratio"]),
            listed(side.get("agree", {})),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    rows += _scores(result)
    if "warm" in details:
        warm = spread(details["warm"]["ratio"])
        rows.append(f"| {result['stage']}, warm | {result['peer']} |  |  |  |  |  | {warm} |  |")
    return [*HEAD, *rows, "", f"{listed(result['versions'])}."]


def _scores(result: Result) -> list[str]:
    """F1 and page F1 of each side, where gold was given: a table of its own."""
    sides = {label: side for label, side in result["sides"].items() if "scores" in side}
    if not sides:
        return []
    head = ["", "| extractor | pages | precision | recall | F1 | page F1 |"]
    rows = [
        f"| {label} | {s['pages']} | {s['precision']:.3f} | {s['recall']:.3f} | {s['f1']:.3f} | "
        f"{s['page_f1']:.3f} |"
        for label, side in sides.items()
        for s in [side["scores"]["all"]["shingles"]]
    ]
    return [*head, "| --- | ---: | ---: | ---: | ---: | ---: |", *rows]


def spread(ratio: dict[str, float]) -> str:
    """Smallest, middle and largest, each followed by the sign of a multiple."""
    return " / ".join(f"{value:.2f}" for value in ratio.values())


def listed(values: dict[str, Any]) -> str:
    """`name value` pairs; lists are left to `--json`."""
    return ", ".join(
        f"{name.replace('_', ' ')} {_number(value)}"
        for name, value in values.items()
        if value is not None and not isinstance(value, list | dict)
    )


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def flat(value: Result, prefix: str = "") -> dict[str, Any]:
    """Nested mappings with their keys joined by dots."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        found |= flat(inner, f"{name}.") if isinstance(inner, dict) else {name: inner}
    return found
