"""What int8 costs: every task's dev score in fp32 and in int8, measured and kept with the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bough.inference.folder import save_metadata
from bough.inference.model import Model
from bough.runs.run_dir import Run


@dataclass(frozen=True)
class ScoreChange:
    """A task's score before and after rounding to int8."""

    task: str
    metric: str
    before: float
    after: float
    rows: int

    @property
    def drop(self) -> float:
        return self.before - self.after

    def __str__(self) -> str:
        scores = f"{self.metric} fp32 {self.before:.4f}  int8 {self.after:.4f}"
        return f"{self.task}: {scores}  change {self.after - self.before:+.4f}"


def changes(
    model: Model, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> list[ScoreChange]:
    """Between two judgements of the same rows, task -> its scores."""
    return [
        ScoreChange(name, metric, before[name][metric], after[name][metric], after[name]["rows"])
        for name, metric in ((name, model.tasks[name].metric_name) for name in after)
    ]


def keep(run: Run, model: Model, found: Iterable[ScoreChange]) -> None:
    """Put them into the run's model folder, and its card: now the model may answer in int8."""
    kept = {change.task: asdict(change) for change in found}
    save_metadata(replace(model, facts={**model.facts, "int8": kept}), run.model)


def known(model: Model) -> list[ScoreChange]:
    """As they were measured; none if they were not."""
    return [ScoreChange(**change) for change in (model.facts.get("int8") or {}).values()]
