"""A comparison as one HTML file that opens offline, by day and by night, on a desk and on a phone.

The verdict comes first, then the pictures that it rests on, then how it was obtained. Each section
is computed by a module of this folder and laid out by the template of its name. Styles and script
are in the file; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bough import __version__
from bough.comparison.compare import AXES, Comparison, compare
from bough.comparison.tables import markdown
from bough.comparison.verdict import verdict
from bough.errors import UserError
from bough.files import write_atomically
from bough.formatting import chance, number, share
from bough.reports import plans, plots, scores
from bough.reports.answers import MOST, task_answers
from bough.reports.contradictions import contradictions
from bough.reports.curves import curves, read_logs
from bough.reports.gradients import cosine_maps
from bough.reports.hard_examples import WORST, read_texts
from bough.reports.provenance import provenance
from bough.templates import environment


def report(
    paths: str | Path | Iterable[str | Path],
    out: str | Path = "report.html",
    *,
    baseline: str | None = None,
    split: str = "dev",
    tasks: Sequence[str] | None = None,
) -> Path:
    """Compare runs and write what they show as one page that opens offline.

    Args:
        paths: A run directory, the directory of a survey or a folder of runs, or several of these.
        out: The file to write: .html, or .md for the tables alone.
        baseline: The variant that the others are held against, by its label or its plan. Left out,
            the one that shares least.
        split: Which rows: `dev` or `test`.
        tasks: The tasks to compare, where not all runs have the same.

    Returns:
        The file that was written.

    Raises:
        UserError: The runs cannot be compared, or there is no such folder to write to.

    Example:
        >>> bough.report(["runs/first", "runs/second"], "report.html").name
        'report.html'
    """
    target = check_target(out)
    if target.suffix not in (".html", ".htm", ".md"):
        raise UserError(
            f"{target}: a report is written as .html or .md; choose one of these endings"
        )
    comparison = compare(paths, baseline=baseline, split=split, tasks=tasks)
    write_atomically(target, markdown(comparison) if target.suffix == ".md" else page(comparison))
    return target


def check_target(out: str | Path) -> Path:
    """The file to write, refused before the work where it could not be written after it."""
    target = Path(out).expanduser()
    if not target.parent.is_dir():
        raise UserError(f"{target.parent}: no such folder to write {target.name} to")
    if target.is_dir():
        raise UserError(f"{target}: is a folder; name a file in it")
    return target


class Section(NamedTuple):
    """A part of the page; `name` is its id and its template's."""

    name: str
    short: str
    title: str
    data: object  # what the template lays out; without any the section is left out


def page(comparison: Comparison) -> str:
    """The whole file's text."""
    templates = environment("bough.reports", html=True)
    templates.filters |= {"number": number, "share": share, "chance": chance}
    templates.globals |= {"mark": plots.mark, "hues": plots.HUES, "number": number}
    conclusion = verdict(comparison)
    return templates.get_template("page.html").render(
        comparison=comparison,
        verdict=conclusion,
        directions={name: _direction(comparison, name) for name in conclusion.tasks},
        sections=[section for section in _sections(comparison) if section.data],
        cost_names=AXES,
        version=__version__,
    )


def _sections(comparison: Comparison) -> list[Section]:
    logs = read_logs(comparison)
    texts, missing = read_texts(comparison)
    answers = {
        "tasks": [task_answers(comparison, name, texts) for name in comparison.metrics],
        "missing": missing,
        "best": MOST if len(comparison.variants) > MOST else None,
        "worst": WORST,
    }
    known = {key for v in comparison.variants for key in v.cost}
    costs = {axis: form for axis, form in scores.FORMS.items() if axis in known}
    breakdown = {words: own for words, own in plans.COSTS.items() if own[0] in known}
    against = comparison.baseline.label
    compared = [
        Section("cost", "Cost", "Score against cost", scores.against_cost(comparison)),
        Section("differences", "Differences", f"Differences from {against}",
                scores.differences(comparison)),
        Section("depth", "Depth", "Score by depth of the split", scores.by_depth(comparison)),
    ]  # fmt: skip
    return [
        *(compared if comparison.others else ()),
        Section("table", "Table", "The table", {"costs": costs}),
        Section("plans", "Plans", "The plans", plans.drawings(comparison)),
        Section("learning", "Learning", "How they learned", curves(comparison, logs)),
        Section("gradients", "Gradients", "Where gradients agree",
                {"variants": cosine_maps(comparison, logs)}),
        Section("answers", "Answers", "What they answer", answers),
        Section("contradictions", "Contradictions", "Where tasks contradict each other",
                contradictions(comparison, texts)),
        Section("breakdown", "Breakdown", "What they cost",
                {"weights": plans.weights_by_users(comparison), "costs": breakdown}),
        Section("method", "Method", "How it was obtained", provenance(comparison)),
    ]  # fmt: skip


def _direction(comparison: Comparison, name: str) -> str | None:
    """Up or down where every difference that shows goes one way."""
    scored = [columns[name] for columns in comparison.scores.values() if name in columns]
    ways = {d.value > 0 for score in scored if (d := score.difference) and d.real}
    return ("up" if True in ways else "down") if len(ways) == 1 else None
