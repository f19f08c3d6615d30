"""The one-line form of a plan: terms separated by commas, read into rows and written from them.

Text that cannot be a plan is refused with the reason and the nearest line that works: every refusal
of a term carries the term to say instead, and the line is mended until it reads.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from bough.mistakes import Mistake

Names = tuple[str | None, ...]  # one per task, in task order; None: nothing here for this task
Kind = Literal["pal", "lowrank", "lora", "bottleneck"]

KINDS: tuple[Kind, ...] = ("pal", "lowrank", "lora", "bottleneck")
MATRICES = "qkvoif"  # query, key, value, output of the attention; into and out of the inner width
# Words of the language with the order in which their terms are read, and written.
WORDS = {"full": 0, "separate": 0, "split": 0, "late": 1, "row": 2, **dict.fromkeys(KINDS, 3)}
WORDS |= {"feed": 4, "feed~": 4, "frozen": 5}
FORMS = "full, separate, split@3, row@3, late:ISS, pal:64, lowrank:64, lora:8, bottleneck:64, "
FORMS += "feed:a>b, feed~:a>b, frozen"


@dataclass(frozen=True)
class Adapter:
    """A small module beside the layers `first` to `last`, once per name."""

    kind: Kind
    size: int
    first: int
    last: int
    names: Names
    heads: int = 0  # pal only
    matrices: str = ""  # lora only: letters of MATRICES

    @property
    def place(self) -> str:
        matrices = f":{self.matrices}" if self.matrices else ""
        return f"{self.kind}:{self.size}{matrices}@{_span(self.first, self.last)}"

    @property
    def label(self) -> str:
        """The place as the printed table says it."""
        return self.place.replace(":", " ").replace("@", " @ ")


@dataclass(frozen=True)
class Read:
    """One head reads another's output; `through`: the gradient passes that head into the trunk."""

    source: str
    through: bool


@dataclass(frozen=True)
class Said:
    """What a line says, row by row: the fields of a plan beside its tasks and layers."""

    embeddings: Names
    layer: tuple[Names, ...]
    pooler: Names
    late: tuple[Names, ...]
    adapters: tuple[Adapter, ...]
    reads: tuple[tuple[Read, ...], ...]
    frozen: int | None


def named(tasks: Sequence[str], labels: Iterable[Hashable]) -> Names:
    """Names of the groups of tasks with equal labels: "all", or the members in task order."""
    members: dict[Hashable, list[str]] = {}
    labels = tuple(labels)
    for task, label in zip(tasks, labels, strict=True):
        members.setdefault(label, []).append(task)
    names = {k: "all" if len(m) == len(tasks) else "+".join(m) for k, m in members.items()}
    return tuple(None if label is None else names[label] for label in labels)


def pal_heads(size: int, heads: int) -> int:
    """The most attention heads, up to the trunk's, that divide a PAL of this size."""
    return next(h for h in range(min(size, heads), 0, -1) if size % h == 0)


# Reading.


def read(
    source: str | Mapping[str, Any],
    tasks: tuple[str, ...],
    layers: int,
    heads: int = 12,
    pooled: Collection[str] | None = None,
) -> Said:
    """What the line or mapping says about these tasks; a `Mistake` if it makes no sense."""
    _check_tasks(tasks, layers, heads)
    pooled = tasks if pooled is None else pooled
    draft = _Draft(tasks, layers, heads)
    if isinstance(source, Mapping):
        if set(source) == {"text"}:
            return read(source["text"], tasks, layers, heads, pooled)
        return _read_mapping(source, draft).said(pooled)
    if not isinstance(source, str):
        raise Mistake(f"a plan is a line of text or a mapping, not {source!r}; say 'full'")
    terms = _terms(source, tasks)
    try:
        return draft.take(terms).said(pooled)
    except _Refused as refused:
        why = refused.why
        for _ in range(50):  # each round mends one term
            if refused.instead is None:
                raise Mistake(f"plan {source!r}: {why}") from None
            terms[refused.at : refused.at + 1] = [refused.instead] if refused.instead else []
            terms = terms or ["full"]
            try:
                _Draft(tasks, layers, heads).take(terms)
            except _Refused as next_one:
                refused = next_one
            else:
                break
        raise Mistake(
            f"plan {source!r}: {why}; the nearest plan that works is {', '.join(terms)!r}"
        ) from None


class _Refused(Exception):  # noqa: N818
    """A term makes no sense; `instead` does ("": leave the term out, None: no idea)."""

    def __init__(self, why: str, instead: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.instead = instead
        self.at = 0


def _check_tasks(tasks: tuple[str, ...], layers: int, heads: int) -> None:
    if not tasks:
        raise Mistake("a plan needs at least one task")
    for task in tasks:
        if not re.fullmatch(r"[A-Za-z0-9_-]+", task) or task == "all":
            raise Mistake(
                f"task name {task!r}: use letters, digits, _ and -, and not the word 'all'"
            )
    twice = [task for task, n in Counter(tasks).items() if n > 1]
    if twice:
        raise Mistake(f"task {twice[0]!r} is named twice; give every task a name of its own")
    if layers < 1 or heads < 1:
        raise Mistake(f"a trunk needs at least one layer and one head, not {layers} and {heads}")


def _terms(text: str, tasks: Sequence[str]) -> list[str]:
    """The line cut at its commas; `sst:4` after a per-task split goes on with that split."""
    terms: list[str] = []
    for piece in text.split(","):
        term = re.sub(r"\s*([@:/+>~-])\s*", r"\1", piece.strip())
        more = re.fullmatch(r"([\w-]+):-?\d+", term)
        if more and terms and re.match(r"split@[\w-]+:", terms[-1]):
            task = more[1]
            said = {part.split(":")[0] for part in terms[-1].removeprefix("split@").split(",")}
            # A task may be called `pal`: then the first `pal:4` is its place in the split.
            if (task in tasks and task not in said) or task not in WORDS:
                terms[-1] += f",{term}"
                continue
        terms.append(term)
    return terms


class _Draft:
    """A plan while it is read: starts as `full` and takes terms in any order of their words."""

    def __init__(self, tasks: tuple[str, ...], layers: int, heads: int) -> None:
        self.tasks = tasks
        self.layers = layers
        self.heads = heads
        self.own = named(tasks, tasks)
        self.all = named(tasks, [0] * len(tasks))
        self.sharing: str | None = None
        self.rows: dict[str, Names] = {"embeddings": self.all}
        self.rows |= {f"layer {n}": self.all for n in range(1, layers + 1)}
        self.late = 0
        self.changed: set[str] = set()  # rows that have a term of their own
        self.adapters: list[Adapter] = []
        self.reads: dict[tuple[str, str], bool] = {}  # (source, reader): through
        self.frozen: int | None = None

    def take(self, terms: Sequence[str]) -> _Draft:
        """Read the terms by kind, so that their order in the line does not matter."""
        words = [re.split(r"[:@/]", term)[0] for term in terms]
        for at in sorted(range(len(terms)), key=lambda i: WORDS.get(words[i], -1)):
            try:
                self.term(words[at], terms[at], terms.index(terms[at]) < at)
            except _Refused as refused:
                refused.at = at
                raise
        return self

    def term(self, word: str, term: str, again: bool = False) -> None:
        takes: dict[str, Callable[[str], None]] = {
            **dict.fromkeys(("full", "separate", "split"), self.share),
            "late": self.take_late,
            "row": self.take_row,
            **dict.fromkeys(KINDS, self.adapt),
            **dict.fromkeys(("feed", "feed~"), self.feed),
            "frozen": self.freeze,
        }
        if not term:
            raise _Refused("there is an empty term; terms are separated by single commas", "")
        if word not in takes:
            close = difflib.get_close_matches(word, takes, 1)
            instead = close[0] + term[len(word) :] if close else None
            raise _Refused(f"unknown term {term!r}; the terms look like {FORMS}", instead)
        if again:
            raise _Refused(f"{term!r} is said twice", "")
        takes[word](term)

    def said(self, pooled: Collection[str]) -> Said:
        layer = [self.rows[f"layer {n}"] for n in range(1, self.layers + 1)]
        pooler = self.rows.get("pooler", layer[-1])
        reads = [
            tuple(
                Read(source, self.reads[source, task])
                for source in self.tasks
                if (source, task) in self.reads
            )
            for task in self.tasks
        ]
        return Said(
            embeddings=self.rows["embeddings"],
            layer=tuple(layer),
            pooler=named(
                self.tasks,
                [n if t in pooled else None for t, n in zip(self.tasks, pooler, strict=True)],
            ),
            late=tuple(self.rows[f"late {n}"] for n in range(1, self.late + 1)),
            adapters=tuple(sorted(self.adapters, key=_adapter_order)),
            reads=tuple(reads),
            frozen=self.frozen,
        )

    # One method per kind of term.

    def share(self, term: str) -> None:
        if self.sharing is not None:
            why = f"{self.sharing!r} and {term!r} both say what is shared; keep one"
            raise _Refused(f"{why}, and change single rows with row@", "")
        word = re.split(r"[:@/]", term)[0]
        if word != "split":
            if term != word:
                raise _Refused(f"{word!r} stands alone, and not as {term!r}", word)
            names = self.all if word == "full" else self.own
            self.rows = dict.fromkeys(self.rows, names)
        elif match := re.fullmatch(r"split@(-?\d+)((?:/.*)?)", term):
            depth = self.depth(int(match[1]), "split@{}" + match[2])
            apart = self.partition(match[2], term) if match[2] else self.own
            for n in range(depth + 1, self.layers + 1):
                self.rows[f"layer {n}"] = apart
        elif re.fullmatch(r"split@[\w-]+:-?\d+(,[\w-]+:-?\d+)*", term):
            leaves = dict.fromkeys(self.tasks, self.layers)
            parts = [part.split(":") for part in term.removeprefix("split@").split(",")]
            for i, (task, number) in enumerate(parts):
                self.known(task, term)
                if task in [t for t, _ in parts[:i]]:
                    rest = ",".join(":".join(p) for p in parts[:i] + parts[i + 1 :])
                    raise _Refused(f"{task!r} leaves twice in {term!r}", f"split@{rest}")
                form = term.replace(f"{task}:{number}", f"{task}:{{}}")
                leaves[task] = self.depth(int(number), form)
            for n in range(1, self.layers + 1):
                labels = [None if leaves[t] >= n else t for t in self.tasks]
                self.rows[f"layer {n}"] = named(self.tasks, [(label,) for label in labels])
        else:
            why = f"{term!r} does not say after which layer to split: split@{self.layers // 2}, "
            why += "split@3/a+b (groups above it) or split@a:2,b:4 (per task)"
            raise _Refused(why, f"split@{self.layers // 2}")
        self.sharing = term

    def take_row(self, term: str) -> None:
        place, slash, groups = term.removeprefix("row").removeprefix("@").partition("/")
        names = self.partition(slash + groups, term) if slash else self.own
        self.set_rows(self.places(place, slash + groups), names, term)

    def take_late(self, term: str) -> None:
        if self.late:
            raise _Refused(f"{term!r} is a second line of late layers; keep one", "")
        match = re.fullmatch(r"late:([^/]*)((?:/.*)?)", term)
        pattern = match[1] if match else ""
        if not match or not re.fullmatch("[IS]+", pattern):
            letters = re.sub("[^IS]", "", pattern.upper()) or "S"
            why = f"{term!r} needs a letter for every late layer: S (shared) or I (one per task)"
            raise _Refused(why, f"late:{letters}{match[2] if match else ''}")
        shared = self.partition(match[2], term) if match[2] else self.all
        for letter in pattern:
            self.late += 1
            self.rows[f"late {self.late}"] = shared if letter == "S" else self.own

    def adapt(self, term: str) -> None:
        pattern = r"(\w+):(-?\d+)(?:x(-?\d+))?(?::([a-z]+))?(?:@(-?\d+)(?:-(-?\d+))?)?((?:/.*)?)"
        match = re.fullmatch(pattern, term)
        if not match or (match[3] and match[1] != "pal") or (match[4] and match[1] != "lora"):
            form = "pal:64, pal:64x8@4-6, lora:8:qv, bottleneck:64/a/b+c"
            size = re.search(r"\d+", term)
            instead = f"{re.split('[:@/]', term)[0]}:{size[0] if size else 64}"
            raise _Refused(f"{term!r} does not have the form of an adapter, like {form}", instead)
        kind, size = cast(Kind, match[1]), int(match[2])
        form = "".join(
            [kind, ":{}", ":" + match[4] if match[4] else ""]
            + ["@" + match[5] if match[5] else "", "-" + match[6] if match[6] else "", match[7]]
        )
        if size < 1:
            least = pal_heads(self.heads, self.heads) if kind == "pal" else 1
            raise _Refused(f"the size in {term!r} must be at least 1", form.format(least))
        heads = self.pal_heads(size, match[3], term, form) if kind == "pal" else 0
        first, last = 1, self.layers
        if match[5]:
            first, last = self.span(int(match[5]), int(match[6] or match[5]), "@", term)
        names = self.own
        if match[7]:
            names = self.partition(match[7], term, alone=False)
        matrices = ""
        if kind == "lora":
            matrices = "".join(m for m in MATRICES if m in (match[4] or "qv"))
            if match[4] and sorted(match[4]) != sorted(matrices):
                better = term.replace(f":{match[4]}", f":{matrices}" if matrices else "")
                why = f"{term!r} names matrices with letters other than q k v o i f, or twice"
                raise _Refused(why, better)
        self.place(Adapter(kind, size, first, last, names, heads, matrices), term)

    def feed(self, term: str) -> None:
        word, _, chain = term.partition(":")
        tasks = chain.split(">")
        if len(tasks) < 2 or not all(tasks):
            rest = [t for t in tasks if t]
            why = f"{term!r} needs a source and a reader, like feed:{'>'.join(self.tasks[:2])}"
            raise _Refused(why, f"{word}:{'>'.join(rest)}" if len(rest) > 1 else "")
        for i, task in enumerate(tasks):
            self.known(task, term)
            rest = tasks[:i] + tasks[i + 1 :]
            instead = f"{word}:{'>'.join(rest)}" if len(rest) > 1 else ""
            if task in tasks[:i]:
                raise _Refused(f"{task!r} would read itself in {term!r}", instead)
            for source in tasks[:i]:
                circle = self.reading_way(source, task)
                if circle:
                    round_trip = " > ".join([*circle, task])
                    raise _Refused(f"the feeds go in a circle, {round_trip}", instead)
                if self.reads.setdefault((source, task), word == "feed~") != (word == "feed~"):
                    why = f"{task!r} reads {source!r} both with feed and with feed~; keep one"
                    raise _Refused(why, instead)

    def freeze(self, term: str) -> None:
        if self.frozen is not None:
            raise _Refused(f"{term!r} is a second word on what is frozen; keep one", "")
        match = re.fullmatch(r"frozen(?:@(-?\d+))?", term)
        if not match:
            why = f"{term!r} is neither frozen (the whole trunk) nor frozen@3 (layers 1 to 3)"
            raise _Refused(why, "frozen")
        self.frozen = self.depth(int(match[1]), "frozen@{}") if match[1] else self.layers

    # Their parts.

    def known(self, task: str, term: str) -> None:
        if task in self.tasks:
            return
        close = difflib.get_close_matches(task, self.tasks, 1)
        better = re.sub(rf"(?<![\w-]){re.escape(task)}(?![\w-])", close[0], term) if close else None
        what = f"{term!r} names the unknown task {task!r}" if task else f"{term!r} lacks a name"
        raise _Refused(f"{what}; the tasks are {', '.join(self.tasks)}", better)

    def partition(self, groups: str, term: str, alone: bool = True) -> Names:
        """Names for `/a+b/c`; who is not named stands alone, or has nothing here."""
        head = term.removesuffix(groups)
        labels: dict[str, int] = {}
        cut = [part.split("+") for part in groups.removeprefix("/").split("/")]
        for g, members in enumerate(cut):
            for m, task in enumerate(members):
                if task == "all" and len(members) == 1:
                    if len(cut) > 1:
                        why = f"'all' in {term!r} leaves nobody for a second group"
                        raise _Refused(why, f"{head}/all")
                    return self.all
                if not task or task in labels:
                    rest = [*cut[:g], members[:m] + members[m + 1 :], *cut[g + 1 :]]
                    instead = head + "".join("/" + "+".join(part) for part in rest if part)
                    what = f"{task!r} stands in two groups" if task else "a name is missing"
                    raise _Refused(f"{what} in {term!r}", instead)
                self.known(task, term)
                labels[task] = g
        rest_of = {t: (t if alone else None) for t in self.tasks}
        return named(self.tasks, [labels.get(t, rest_of[t]) for t in self.tasks])

    def depth(self, number: int, form: str) -> int:
        """A number of layers from the top, 0 to all of them."""
        if 0 <= number <= self.layers:
            return number
        said, best = form.format(number), form.format(min(max(number, 0), self.layers))
        if number < 0:
            raise _Refused(f"{said!r} has a negative number of layers", best)
        if self.layers == 1:
            why = f"{said!r}: a trunk of one layer has no middle; split@0 shares the embeddings"
            raise _Refused(why, best)
        raise _Refused(f"{said!r} is deeper than the trunk, which has {self.layers} layers", best)

    def span(self, first: int, last: int, before: str, term: str, end: int = 0) -> tuple[int, int]:
        """Layers `first` to `last`, both counted from 1."""
        end = end or self.layers
        if 1 <= first <= last <= end:
            return first, last
        low, high = sorted(min(max(n, 1), end) for n in (first, last))
        said = re.sub(rf"{before}-?\d+(--?\d+)?", f"{before}{_span(low, high)}", term, count=1)
        raise _Refused(f"{term!r} goes beyond the layers 1 to {end}", said)

    def places(self, place: str, rest: str) -> list[str]:
        """Rows that a place such as `embeddings`, `3`, `5-6` or `late2` stands for."""
        place = re.sub(r"\s+", "", place)
        match = re.fullmatch(r"(layer|late)?(-?\d+)(?:-(-?\d+))?", place)
        if place in ("embeddings", "pooler"):
            return [place]
        if not match:
            close = difflib.get_close_matches(place, ["embeddings", "pooler"], 1)
            why = f"there is no row {place!r}: say embeddings, pooler, 3, 5-6 or late1"
            raise _Refused(why, f"row@{close[0]}{rest}" if close else None)
        kind, end = match[1] or "layer", self.layers
        if kind == "late":
            end = self.late
            if not end:
                raise _Refused(f"the row {place!r} needs late layers, like late:IS", "")
        first, last = self.span(
            int(match[2]), int(match[3] or match[2]), f"@{match[1] or ''}", f"row@{place}{rest}", end
        )
        return [f"{kind} {n}" for n in range(first, last + 1)]

    def set_rows(self, places: Iterable[str], names: Names, term: str) -> None:
        for place in places:
            if place in self.changed:
                raise _Refused(f"{term!r} changes the row {place!r} a second time", "")
            self.changed.add(place)
            self.rows[place] = names

    def place(self, new: Adapter, term: str) -> None:
        """Add an adapter; terms that differ in their tasks only are one adapter."""
        for i, old in enumerate(self.adapters):
            if old.place != new.place:
                continue
            both = [a is not None and b is not None for a, b in zip(old.names, new.names, strict=True)]
            if any(both):
                task = self.tasks[both.index(True)]
                raise _Refused(f"{task!r} has {new.place!r} already; {term!r} gives it again", "")
            if old.heads == new.heads:
                names = tuple(a or b for a, b in zip(old.names, new.names, strict=True))
                self.adapters[i] = replace(old, names=names)
                return
        self.adapters.append(new)

    def pal_heads(self, size: int, said: str | None, term: str, form: str) -> int:
        """Heads as said, or the most that divide the size. Few heads on a large PAL are a slip."""
        heads = int(said) if said else pal_heads(size, self.heads)
        if said:
            if heads < 1:
                raise _Refused(f"{term!r} needs at least one head", form.format(size))
            if size % heads == 0:
                return heads
            why = f"the size {size} of {term!r} is not divisible by its {heads} heads"
            by = heads
        else:
            if size < 16 or heads >= min(4, self.heads):
                return heads
            why = f"the size {size} is not divisible by the trunk's {self.heads} heads, "
            why += f"nor by 4 or more below that (say pal:{size}x{heads} if you mean {heads})"
            by = self.heads
        best = max(1, round(size / by)) * by
        raise _Refused(why, form.format(f"{best}x{by}" if said else best))

    def reading_way(self, start: str, goal: str) -> list[str]:
        """The way by which `start` reads `goal`, written from the source on; empty if none."""
        if start == goal:
            return [goal]
        for source, reader in self.reads:
            if reader == start and (way := self.reading_way(source, goal)):
                return [*way, start]
        return []


def _read_mapping(source: Mapping[str, Any], draft: _Draft) -> _Draft:
    """The long form: rows by label, late layers, adapters, feeds, frozen."""
    known = ["rows", "late", "adapters", "feed", "frozen"]
    key = ""
    try:
        for key in source:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, 1)
                why = f"unknown; a plan has text alone, or {', '.join(known)}"
                raise _Refused(why, close[0] if close else None)
        key = "late"
        late = source.get("late") or []
        if isinstance(late, str):
            draft.take_late(f"late:{late.removeprefix('late:')}")
        else:
            for value in late:
                draft.late += 1
                draft.rows[f"late {draft.late}"] = _row(value, draft)
        key = "rows"
        given: dict[str, Names] = {}
        for label, value in (source.get("rows") or {}).items():
            key = f"rows: {label}"
            draft.set_rows(draft.places(str(label), ""), names := _row(value, draft), str(label))
            given |= {place: names for place in draft.places(str(label), "")}
        above = draft.all
        for place in [p for p in draft.rows if not p.startswith("late ") and p != "pooler"]:
            above = draft.rows[place] = given.get(place, above)
        key = "adapters"
        for term in _listed(source.get("adapters")):
            draft.term(re.split("[:@/]", term)[0], term)
        key = "feed"
        for term in _listed(source.get("feed")):
            draft.feed(term if term.startswith("feed") else f"feed:{term}")
        key = "frozen"
        frozen = source.get("frozen")
        if frozen is not None and frozen is not False:
            draft.freeze("frozen" if frozen is True else f"frozen@{frozen}")
    except _Refused as refused:
        instead = f"; say {refused.instead!r}" if refused.instead else ""
        raise Mistake(f"plan, {key}: {refused.why}{instead}") from None
    return draft


def _listed(value: object) -> list[str]:
    values = [value] if isinstance(value, str) else list(cast(Iterable[str], value or []))
    return [re.sub(r"\s", "", str(v)) for v in values]


def _row(value: object, draft: _Draft) -> Names:
    """A row of the long form: all, own, groups as in the line, or a label per task."""
    if isinstance(value, Mapping):
        for task in value:
            draft.known(str(task), str(task))
        labels = [(value.get(t), t if value.get(t) is None else "") for t in draft.tasks]
        return named(draft.tasks, labels)
    text = re.sub(r"\s", "", str(value))
    if text in ("own", "I"):
        return draft.own
    return draft.all if text == "S" else draft.partition(f"/{text}", f"/{text}")


# Writing.


def write(said: Said, tasks: tuple[str, ...], heads: int = 12) -> str:
    """The canonical line; `full` is said only when nothing else is."""
    terms = [*_write_sharing(said, tasks), *_write_late(said.late, tasks)]
    terms += [_write_adapter(a, tasks, len(said.layer), heads) for a in said.adapters]
    terms += _write_feeds(said.reads, tasks)
    if said.frozen is not None:
        terms.append("frozen" if said.frozen == len(said.layer) else f"frozen@{said.frozen}")
    return ", ".join(terms) or "full"


def _write_sharing(said: Said, tasks: tuple[str, ...]) -> list[str]:
    """The sharing term that needs the fewest row terms after it."""
    depth = len(said.layer)
    bases = ["full", "separate"]
    bases += [f"split@{n}{_groups(names, tasks)}" for n, names in enumerate(said.layer)]
    leaves = [
        next((n for n, names in enumerate(said.layer) if names[i] == task), depth)
        for i, task in enumerate(tasks)
    ]
    bases.append("split@" + ",".join(f"{t}:{n}" for t, n in zip(tasks, leaves, strict=True)))
    lines = []
    for base in bases:
        draft = _Draft(tasks, depth, 1)
        draft.share(base)
        line = [base] if base != "full" else []
        if said.embeddings != draft.rows["embeddings"]:
            line.append(f"row@embeddings{_groups(said.embeddings, tasks)}")
        wrong = [names != draft.rows[f"layer {n}"] for n, names in enumerate(said.layer, 1)]
        line += [
            f"row@{span}{_groups(names, tasks)}" for span, names in _runs(said.layer, wrong)
        ]
        lines.append(line)
    last = [n if p else None for n, p in zip(said.layer[-1], said.pooler, strict=True)]
    best = min(lines, key=lambda line: (len(line), len(", ".join(line))))
    if said.pooler != named(tasks, last):
        best.append(f"row@pooler{_groups(said.pooler, tasks)}")
    return best


def _write_late(late: tuple[Names, ...], tasks: tuple[str, ...]) -> list[str]:
    if not late:
        return []
    own, everyone = named(tasks, tasks), named(tasks, [0] * len(tasks))
    shared = [names for names in late if names != own or own == everyone]
    common = Counter(shared).most_common(1)[0][0] if shared else everyone
    letters = "".join("I" if names == own != everyone else "S" for names in late)
    wrong = [letter == "S" and names != common for letter, names in zip(letters, late, strict=True)]
    rows = [f"row@late{span}{_groups(names, tasks)}" for span, names in _runs(late, wrong)]
    return [f"late:{letters}{_groups(common, tasks) if common != everyone else ''}", *rows]


def _write_adapter(a: Adapter, tasks: tuple[str, ...], layers: int, heads: int) -> str:
    text = f"{a.kind}:{a.size}"
    # Heads are left out only when they go without saying, on this trunk and on the usual one.
    if a.kind == "pal" and {a.heads} != {pal_heads(a.size, heads), pal_heads(a.size, 12)}:
        text += f"x{a.heads}"
    if a.kind == "lora" and a.matrices != "qv":
        text += f":{a.matrices}"
    if (a.first, a.last) != (1, layers):
        text += f"@{_span(a.first, a.last)}"
    if a.names != named(tasks, tasks):
        text += "".join(f"/{name}" for name in dict.fromkeys(a.names) if name)
    return text


def _write_feeds(reads: tuple[tuple[Read, ...], ...], tasks: tuple[str, ...]) -> list[str]:
    """Chains in which every task reads all before it, until every reading is said."""
    terms = []
    for through in (False, True):
        links = {
            (read.source, task)
            for task, own in zip(tasks, reads, strict=True)
            for read in own
            if read.through == through
        }
        depth = {task: 0 for task in tasks}
        for _ in tasks:  # longest way from a source: earlier heads have smaller numbers
            depth |= {t: max((depth[s] + 1 for s, r in links if r == t), default=0) for t in tasks}
        order = sorted(tasks, key=lambda t: (depth[t], tasks.index(t)))
        unsaid = set(links)
        for pair in itertools.combinations(order, 2):
            if pair not in unsaid:
                continue
            chain = list(pair)
            for task in order[order.index(pair[1]) + 1 :]:
                if all((source, task) in links for source in chain):
                    chain.append(task)
            unsaid -= set(itertools.combinations(chain, 2))
            terms.append(f"feed{'~' if through else ''}:{'>'.join(chain)}")
    return terms


def _groups(names: Names, tasks: tuple[str, ...]) -> str:
    """The groups of a row as text; nothing when everyone stands alone."""
    if all(name in (None, task) for name, task in zip(names, tasks, strict=True)):
        return ""
    return "".join(f"/{n}" for n in dict.fromkeys(names) if n and n not in tasks)


def _runs(rows: Sequence[Names], wrong: Sequence[bool]) -> list[tuple[str, Names]]:
    """Neighbouring wrong rows with the same names, counted from 1."""
    runs = []
    for (names, bad), run in itertools.groupby(
        enumerate(zip(rows, wrong, strict=True), 1), key=lambda item: item[1]
    ):
        if bad:
            numbers = [n for n, _ in run]
            runs.append((_span(numbers[0], numbers[-1]), names))
    return runs


def _adapter_order(adapter: Adapter) -> tuple[object, ...]:
    a = adapter
    return (KINDS.index(a.kind), a.size, a.first, a.last, a.matrices, a.heads)


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"
