"""What `gristmill plan` prints."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.plan import Planned
    from pipeline.whole import Estimate, Whole

UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def show_plan(rows: "list[Planned]") -> list[str]:
    """A line a stage of a partition."""
    lines = [] if rows else ["no snapshot is registered yet; look at a new one with --snapshot S"]
    for row in rows:
        cost = f"{row.missing}/{row.parts} parts, {size(row.input_bytes)}, "
        if row.cpu_seconds is None:
            cost += "no rate was measured yet"
        else:
            cost += f"{row.cpu_seconds:,.0f} CPU s"
            cost += f" (rate of {row.rate_of})" if row.rate_of != row.partition else ""
        lines.append(f"{row.partition}  {row.stage:<16} {cost if row.missing else '-'}  {row.why}")
    return lines


def show_whole(name: str, whole: "Whole | str") -> list[str]:
    """A table of the stages of a whole snapshot, from its sample."""
    if isinstance(whole, str):
        return [f"{name}: how much the whole snapshot is, is not known: {whole}"]
    share = whole.sample_files / whole.files
    lines = [
        f"{name}, whole: {whole.files:,} files, {ranged(whole.crawl_bytes, size)}; from a sample "
        f"of {whole.sample_files:,} files ({share:.2%}), {size(whole.sample_bytes)}. "
        f"Ranges: {whole.confidence:.0%}, none from one file.",
        f"  {'stage':<16}{'documents':>30}{'disk':>30}{'CPU hours':>26}"
        f"{f'hours, {whole.workers} workers':>20}",
    ]
    for stage in whole.stages:
        cpu = ranged(stage.cpu_hours, _hours) if stage.cpu_hours else "unknown"
        wall = _hours(stage.wall_hours) if stage.wall_hours is not None else "unknown"
        note = "  at most" if stage.at_most else ""
        lines.append(
            f"  {stage.stage:<16}{ranged(stage.documents, _count):>30}"
            f"{ranged(stage.disk_bytes, size):>30}{cpu:>26}{wall:>20}{note}"
        )
    lines += [f"  {stage:<16}unknown: none of it was run" for stage in whole.missing]
    if any(stage.at_most for stage in whole.stages):
        lines.append("  at most: a sample meets few of the duplicates that its pages have")
    disk = sum(stage.disk_bytes.value for stage in whole.stages)
    cpu_hours = sum(stage.cpu_hours.value for stage in whole.stages if stage.cpu_hours)
    return [*lines, f"  together {size(disk)} of disk, {_hours(cpu_hours)} CPU hours"]


def ranged(estimate: "Estimate", form: "object") -> str:
    """A value with the ends of its range."""
    assert callable(form)
    if estimate.low is None or estimate.high is None:
        return str(form(estimate.value))
    return f"{form(estimate.value)} ({form(estimate.low)} to {form(estimate.high)})"


def size(n_bytes: float) -> str:
    """Bytes in the unit that keeps one to three digits before the point."""
    for unit, name in UNITS:
        if n_bytes >= unit:
            return f"{n_bytes / unit:,.1f} {name}"
    return f"{n_bytes:,.0f} B"


def _count(n: float) -> str:
    return f"{n:,.0f}"


def _hours(hours: float) -> str:
    return f"{hours:,.4f}" if hours < 1 else f"{hours:,.1f}"
