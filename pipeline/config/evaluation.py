"""Configuration of the benchmarks that an exported model is scored on."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class EvaluationConfig(Section):
    """Tasks of the lm-eval harness, from local files alone; it needs the extra `eval`."""

    tasks: str | None = Field(
        None,
        description="folder of task files (YAML) and their data for `benchmark_scores`; "
        "`data_files` in them are relative to it",
    )
    names: list[str] = Field(
        default_factory=list, description="tasks or groups to score; none: every one of the folder"
    )
    limit: int | None = Field(None, ge=1, description="examples a task at most; default: all")
    batch_size: int = Field(8, ge=1, le=4096, description="requests the model takes at a time")
