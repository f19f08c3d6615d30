"""A comparison as one HTML file that opens offline, by day and by night, on a desk and on a phone.

The verdict comes first, then the pictures that it rests on, then how it was obtained. Styles and
script are in the file; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from bough import __version__
from bough.comparison.compare import Comparison, compare
from bough.comparison.tables import markdown
from bough.comparison.verdict import verdict
from bough.errors import UserError
from bough.files import write_atomically
from bough.reports import hard_examples, panels, plans, plots, provenance, scores
from bough.reports.html import Markup, Part, element, join


def write(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    baseline: str | None = None,
    split: str = "dev",
    tasks: Sequence[str] | None = None,
) -> Path:
    """Compare runs and write the report: one page that opens offline, or Markdown.

    Args:
        paths: Run directories, surveys, folders of runs.
        out: An .html file, or .md.
        baseline: The variant that the others are held against, by its label.
        split: Which rows: `dev` or `test`.
        tasks: Those to be compared, where runs have different ones.

    Example:
        >>> bough.report(["runs/first", "runs/second"], "report.html").name
        'report.html'
    """
    target = checked(out)
    if target.suffix not in (".html", ".htm", ".md"):
        raise UserError(
            f"{target}: a report is written as .html or .md; choose one of these endings"
        )
    found = compare(paths, baseline=baseline, split=split, tasks=tasks)
    write_atomically(target, markdown(found) if target.suffix == ".md" else page(found))
    return target


def checked(out: str | Path) -> Path:
    """The file to write, refused before the work where it could not be written after it."""
    target = Path(out).expanduser()
    if not target.parent.is_dir():
        raise UserError(f"{target.parent}: no such folder to write {target.name} to")
    if target.is_dir():
        raise UserError(f"{target}: is a folder; name a file in it")
    return target


def page(found: Comparison) -> str:
    """The whole file's text."""
    logs = panels.read_logs(found)
    known, gone = hard_examples.texts(found)
    legend = plots.legend([v.label for v in found.variants]) if found.others else None
    sections: list[tuple[str, str, str, Part]] = []

    def add(key: str, short: str, title: str, *parts: Part) -> None:
        if any(part is not None and part != "" and part != [] for part in parts):
            sections.append((key, short, title, parts))

    if found.others:
        add("cost", "Cost", "Score against cost", legend, scores.against_cost(found))
        add(
            "differences",
            "Differences",
            f"Differences from {found.baseline.label}",
            scores.differences(found),
        )
        add("depth", "Depth", "Score by depth of the split", scores.depths(found))
    add("table", "Table", "The table", scores.table(found))
    add("plans", "Plans", "The plans", plans.plans(found))
    learned = panels.curves(found, logs)
    add("learning", "Learning", "How they learned", legend, element("div", learned, class_="two"))
    add("gradients", "Gradients", "Where gradients agree", _gradients(found, logs))
    add("answers", "Answers", "What they answer", _answers(found, known, gone))
    add(
        "contradictions",
        "Contradictions",
        "Where tasks contradict each other",
        _contradictions(found, known),
    )
    add("breakdown", "Breakdown", "What they cost", plans.breakdown(found))
    add("method", "Method", "How it was obtained", provenance.section(found))

    names = " / ".join(found.metrics)
    runs = sum(len(v.runs) for v in found.variants)
    title = f"bough: {names}"
    body = [
        element(
            "header",
            element("h1", f"What sharing costs and gains: {', '.join(found.metrics)}"),
            element(
                "div",
                f"{_count(len(found.variants), 'variant')}, {_count(runs, 'run')}, scores on "
                f"{found.split}",
                class_="pale",
            ),
            _verdict(found),
        ),
        element("nav", element("div", [_link(key, text) for key, text, _, _ in sections])),
        element(
            "main",
            [
                element("section", element("h2", text), parts, id=key)
                for key, _, text, parts in sections
            ],
        ),
        element("footer", f"Made by bough {__version__}. This file needs no network."),
    ]
    files = resources.files("bough.reports")
    style, script = (files.joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    ]
    whole = element(
        "html", element("head", head), element("body", body, element("script", Markup(script))),
        lang="en",
    )  # fmt: skip
    return f"<!doctype html>\n{whole}\n"


def _link(key: str, text: str) -> Markup:
    return element("a", text, href=f"#{key}")


def _count(many: int, what: str) -> str:
    return f"{many} {what}{'s' * (many != 1)}"


# --- its parts -----------------------------------------------------------------------------------


def _verdict(found: Comparison) -> Markup:
    said = verdict(found)
    items = [element("li", text, class_=_way(found, name)) for name, text in said.tasks.items()]
    items += [element("li", text) for text in said.costs[:6]]
    if len(said.costs) > 6:
        rest = len(said.costs) - 6
        more = f"{rest} more variant{'s' if rest > 1 else ''}"
        items.append(element("li", f"Costs of {more}: see the table."))
    items += [element("li", text, class_="note") for text in said.notes]
    return element(
        "div",
        element("p", said.headline, class_="headline"),
        element("ul", items),
        class_="card verdict",
    )


def _way(found: Comparison, name: str) -> str | None:
    """Up or down where every difference that shows goes one way."""
    scores = [own[name].difference for own in found.scores.values() if name in own]
    ways = {d.value > 0 for d in scores if d is not None and d.real}
    return {frozenset({True}): "up", frozenset({False}): "down"}.get(frozenset(ways))


def _gradients(found: Comparison, logs: panels.Logs) -> Markup:
    maps = panels.cosines(found, logs)
    if maps is None:
        words = "Not logged. Set training.cosines_every to see where tasks pull apart."
        return element("p", words, class_="pale")
    words = (
        "Cosine between two tasks' gradients at each shared place over the course of training: "
        "blue where they pull together, orange where they pull apart, pale where they ignore each "
        "other."
    )
    return join([element("p", words), maps])


def _answers(found: Comparison, known: hard_examples.Texts, gone: Sequence[str]) -> Markup:
    parts: list[Part] = [element("p", text, class_="pale") for text in gone]
    hidden = len(found.variants) - panels.MOST
    if hidden > 0:
        parts.append(element("p", f"The best {panels.MOST} variants are shown.", class_="pale"))
    for name in found.metrics:
        parts.append(element("h3", f"{name} ({found.rows[name]:,} rows)"))
        parts.append(panels.answers(found, name, hard_examples.worst(found, name, known)))
    return join(parts)


def _contradictions(found: Comparison, known: hard_examples.Texts) -> Markup | None:
    column = found.overall
    having = [v for v in found.variants if column in found.scores[v.label]]
    if not having or sum(task.paired for task in having[0].recipe.tasks.values()) < 2:
        return None
    best = max(having, key=lambda v: found.scores[v.label][column].value)
    truths: dict[str, list[str]] = {}
    for (label, name), own in found.answers.items():
        if label == best.label:
            classes, truth = own[0].labels, own[0].truth
            truths[name] = [classes[int(t)] if classes else f"{t:g}" for t in truth]
    pairs, why = hard_examples.contradictions(best, known, truths)
    if why:
        return element("p", f"Not shown: {why}.", class_="pale")
    return panels.contradictions(pairs, f"{best.label} (seed {best.seeds[0]})")
