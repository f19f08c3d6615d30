"""The language of plans: a line of terms separated by commas, or a mapping, read into rows.

What cannot be a plan is refused with the reason and the nearest line that works: each refusal of a
term brings the term to say instead, and the line is mended until it reads.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bough.errors import UserError, shorten
from bough.plan.terms import WORDS, PlanBuilder, PlanError, word
from bough.plan.types import KINDS, Names, ParsedPlan, named
from bough.recipe.validation import TASK_NAME

MOST_LETTERS, MOST_LAYERS = 5000, 200  # of a line that a person could mean, and of a trunk


def parse(
    source: str | Mapping[str, Any],
    tasks: tuple[str, ...],
    layers: int,
    heads: int = 12,
    pooled: Collection[str] | None = None,
) -> ParsedPlan:
    """What the line or mapping says about these tasks; a `UserError` if it makes no sense."""
    _check(tasks, layers, heads)
    pooled = tasks if pooled is None else pooled
    if isinstance(source, Mapping) and set(source) == {"text"}:
        source = source["text"]
    if isinstance(source, Mapping):
        return _read_mapping(source, PlanBuilder(tasks, layers, heads)).parsed(pooled)
    if not isinstance(source, str):
        raise UserError(f"a plan is a line of text or a mapping, not {source!r}; say 'full'")
    if len(source) > MOST_LETTERS:
        raise UserError(
            f"plan {shorten(source)}: {len(source):,} letters; a plan has at most {MOST_LETTERS:,}"
        )
    terms = _cut(source, tasks)
    builder = PlanBuilder(tasks, layers, heads)
    bad, error = _read_line(terms, builder)
    if error is None:
        return builder.parsed(pooled)
    reason = f"plan {source!r}: {error.reason}"
    for _ in range(50):  # a line of many faults needs many rounds; each mends one
        if error is None:
            mended = ", ".join(terms)
            raise UserError(f"{reason}; the nearest plan that works is {mended!r}")
        if error.suggestion is None:
            break
        terms[bad : bad + 1] = [error.suggestion] if error.suggestion else []
        terms = terms or ["full"]
        bad, error = _read_line(terms, PlanBuilder(tasks, layers, heads))
    raise UserError(reason)


def _check(tasks: tuple[str, ...], layers: int, heads: int) -> None:
    if not tasks:
        raise UserError("a plan needs at least one task")
    for task, times in Counter(tasks).items():
        if not TASK_NAME.fullmatch(task) or task == "all":
            reason = "use letters, digits, _ and -, and not the word 'all'"
            raise UserError(f"task name {task!r}: {reason}")
        if times > 1:
            raise UserError(f"task {task!r} is named twice; give every task a name of its own")
    if layers < 1 or heads < 1:
        raise UserError(f"a trunk needs at least one layer and one head, not {layers} and {heads}")
    if layers > MOST_LAYERS:
        raise UserError(f"a trunk has at most {MOST_LAYERS} layers, not {shorten(layers)}")


def _cut(text: str, tasks: Sequence[str]) -> list[str]:
    """The line cut at its commas; `sst:4` after a per-task split goes on with that split."""
    terms: list[str] = []
    for piece in text.split(","):
        term = re.sub(r"\s*([@:/+>~-])\s*", r"\1", piece.strip())
        more = re.fullmatch(r"([\w-]+):-?[0-9]+", term)
        if more and terms and re.match(r"split@[\w-]+:", terms[-1]):
            gone = {part.split(":")[0] for part in terms[-1].removeprefix("split@").split(",")}
            # A task may be called `pal`: then the first `pal:4` is its place in the split.
            if (more[1] in tasks and more[1] not in gone) or more[1] not in WORDS:
                terms[-1] += f",{term}"
                continue
        terms.append(term)
    return terms


def _read_line(terms: Sequence[str], builder: PlanBuilder) -> tuple[int, PlanError | None]:
    """Read the terms by kind, so that their order does not matter; where and why it failed."""
    rank = {w: n for n, w in enumerate(WORDS)}
    for at in sorted(range(len(terms)), key=lambda i: rank.get(word(terms[i]), -1)):
        try:
            if terms[at] and terms.index(terms[at]) < at:
                raise PlanError(f"{terms[at]!r} is said twice", "")
            builder.read(terms[at])
        except PlanError as error:
            return at, error
    return 0, None


def _read_mapping(source: Mapping[str, Any], builder: PlanBuilder) -> PlanBuilder:
    """The long form: rows by label, late layers, adapters, feeds, frozen."""
    known = ["rows", "late", "adapters", "feed", "frozen"]
    key = ""
    try:
        for key in source:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, 1)
                reason = f"unknown key; a plan has text alone, or {', '.join(known)}"
                raise PlanError(reason, close[0] if close else None)
        key = "late"
        late = source.get("late")
        if isinstance(late, str):
            builder.read_late(f"late:{late.removeprefix('late:')}")
        else:
            for builder.late, value in enumerate(_listed(late), 1):
                builder.rows[f"late {builder.late}"] = _row(value, builder)
        key = "rows"
        rows = source.get("rows") or {}
        if not isinstance(rows, Mapping):
            raise PlanError("rows are a mapping, like {layer 1-4: all, layer 5-6: {a: x, b: x}}")
        for label, value in rows.items():
            key = f"rows, {label}"
            builder.set_rows(builder.places(str(label)), _row(value, builder), str(label))
        above = builder.all  # a row that is not given is like the one above
        for place in ["embeddings", *(f"layer {n}" for n in range(1, builder.layers + 1))]:
            above = builder.rows[place] = builder.rows[place] if place in builder.changed else above
        key = "adapters"
        for term in _texts(source.get("adapters")):
            if word(term) not in KINDS:
                raise PlanError(f"{term!r} is no adapter; there are {', '.join(KINDS)}")
            builder.read_adapter(term)
        key = "feed"
        for term in _texts(source.get("feed")):
            whole = word(term) in ("feed", "feed~") and ":" in term
            builder.read_feed(term if whole else f"feed:{term}")
        key = "frozen"
        frozen = source.get("frozen")
        if frozen is not None and frozen is not False:
            builder.read_frozen("frozen" if frozen is True else f"frozen@{frozen}")
    except PlanError as error:
        better = f"; say {error.suggestion!r}" if error.suggestion else ""
        raise UserError(f"plan, {key}: {error.reason}{better}") from None
    return builder


def _row(value: object, builder: PlanBuilder) -> Names:
    """A row of the long form: all, own, groups as in the line, or a label per task."""
    if isinstance(value, Mapping):
        for task in value:
            builder.check_task(str(task), str(task))
        labels = {str(task): str(label) for task, label in value.items() if label is not None}
        return named(builder.tasks, [(labels.get(t), t in labels or t) for t in builder.tasks])
    text = re.sub(r"\s", "", str(value))
    if text in ("own", "I"):
        return builder.separate
    return builder.all if text == "S" else builder.partition(f"/{text}", f"/{text}")


def _texts(value: object) -> list[str]:
    """One term or a list of them, without blanks."""
    return [
        re.sub(r"\s", "", str(v)) for v in ([value] if isinstance(value, str) else _listed(value))
    ]


def _listed(value: object) -> list[object]:
    if value is None or isinstance(value, list | tuple):
        return list(value or [])
    raise PlanError(f"{value!r} is neither text nor a list of such")
