"""How often a survey was looked at while it grew: seeds added until something shows show too much.

A line of `looks.jsonl` in the survey's directory is a comparison: its date, and the runs it had.
Looking again at the same runs is no further look, nor is one at fewer than three seeds: that is an
anecdote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bough.comparison.groups import FEW, Variant
from bough.comparison.scores import look_factor
from bough.formatting import and_then
from bough.runs.run_dir import Run

FILE = "looks.jsonl"
Seeds = tuple[int, int]  # of the variant and of the base: a look is another if either has grown


@dataclass(frozen=True)
class Look:
    """What was compared of a survey, and when."""

    date: str
    runs: frozenset[Path]

    def seeds(self, variant: Variant, base: Variant) -> Seeds:
        """How many this look had of the two."""
        own, other = (
            sum(run.folder.resolve() in self.runs for run in v.runs) for v in (variant, base)
        )
        return own, other


def earlier(paths: Iterable[str], split: str) -> list[Look]:
    """The looks at these surveys before, in their order."""
    return [look for survey in _surveys(paths) for look in _read(survey, split)]


def count(
    variants: Sequence[Variant], base: Variant, before: Sequence[Look]
) -> tuple[dict[str, int], list[str]]:
    """The looks at each variant, this one included, and a word on them where there are several."""
    looks: dict[str, int] = {}
    dates: dict[Seeds, str] = {}
    for v in variants:
        now = (len(v.seeds), len(base.seeds))
        then = {look.seeds(v, base): look.date for look in reversed(before)}
        other = {many: date for many, date in then.items() if min(many) >= FEW and many != now}
        looks[v.label] = len(other) + 1
        dates |= other
    return looks, [_note(looks, dates)] if dates else []


def _note(looks: Mapping[str, int], dates: Mapping[Seeds, str]) -> str:
    most = max(looks.values())
    before = and_then([f"with {_told(many)} on {date}" for many, date in sorted(dates.items())])
    return (
        f"look {most} at a survey that grew: it was compared {before}; seeds added until "
        f"something shows would show too much, so p is raised {look_factor(most)}-fold"
    )


def _told(seeds: Seeds) -> str:
    own, other = seeds
    return f"{own} seeds" if own == other else f"{own} seeds against {other}"


def remember(paths: Iterable[str], runs: Sequence[Run], split: str) -> None:
    """Write down what was looked at, where a survey has runs that it had not at the last look."""
    folders = frozenset(run.folder.resolve() for run in runs)
    for survey in _surveys(paths):
        own = {folder for folder in folders if folder.parent == (survey / "runs").resolve()}
        if any(own <= look.runs for look in _read(survey, split)):
            continue
        entry = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "split": split,
            "runs": sorted(folder.name for folder in own),
        }
        # A survey that is only read, say another's, can be compared all the same.
        with suppress(OSError), open(survey / FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _surveys(paths: Iterable[str]) -> list[Path]:
    """Those of the paths that are surveys; of plain folders nobody knows how they grew."""
    folders = dict.fromkeys(Path(path).expanduser().resolve() for path in paths)
    return [folder for folder in folders if (folder / "survey.yaml").is_file()]


def _read(survey: Path, split: str) -> Iterator[Look]:
    """A line that is none of ours is passed over: it tells of no look."""
    try:
        lines = (survey / FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if entry["split"] == split:
                folder = (survey / "runs").resolve()
                yield Look(str(entry["date"]), frozenset(folder / name for name in entry["runs"]))
