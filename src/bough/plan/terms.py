"""The terms of a plan, one by one: what `split@4`, `pal:64` or `feed:a>b` do to the rows.

A term that makes no sense is refused with the reason and with the term to say instead, so that a
line can be mended (`parser`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import cast

from bough.plan.types import (
    MATRICES,
    Adapter,
    Kind,
    Names,
    ParsedPlan,
    Read,
    adapter_order,
    named,
    pal_heads,
    span,
)

FORMS = (
    "full, separate, split@3, row@3, late:ISS, pal:64, lowrank:64, lora:8, bottleneck:64, "
    "feed:a>b, feed~:a>b, feed~0.1:a>b, frozen"
)
NUMBER = r"(-?[0-9]{1,6})"
MOST_LATE, MOST_SIZE = 50, 2**12  # of late layers, and of an adapter; more is a slip of the pen


def word(term: str) -> str:
    """The word that a term starts with: split, pal, feed~."""
    return re.split(r"[:@/]|(?<=~)", term)[0]


class PlanError(Exception):
    """A term makes no sense; `suggestion` does ("": leave the term out, None: no idea)."""

    def __init__(self, reason: str, suggestion: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.suggestion = suggestion


class PlanBuilder:
    """A plan while it is read: starts as `full`, takes term after term.

    Sharing comes before late layers, both before single rows: see `WORDS`.
    """

    def __init__(self, tasks: tuple[str, ...], layers: int, heads: int) -> None:
        self.tasks = tasks
        self.layers = layers
        self.heads = heads
        self.separate = named(tasks, tasks)
        self.all = named(tasks, [0] * len(tasks))
        self.rows: dict[str, Names] = {"embeddings": self.all}
        self.rows |= {f"layer {n}": self.all for n in range(1, layers + 1)}
        self.sharing = ""  # the term that said it
        self.late = 0
        self.changed: set[str] = set()  # rows that have a term of their own
        self.adapters: list[Adapter] = []
        self.reads: dict[tuple[str, str], Read] = {}  # by (source, reader)
        self.frozen: int | None = None

    def read(self, term: str) -> None:
        """Read one term."""
        if not term:
            raise PlanError("there is an empty term; terms are separated by single commas", "")
        if word(term) not in WORDS:
            close = difflib.get_close_matches(word(term), WORDS, 1)
            suggestion = close[0] + term[len(word(term)) :] if close else None
            raise PlanError(f"unknown term {term!r}; the terms look like {FORMS}", suggestion)
        WORDS[word(term)](self, term)

    def parsed(self, pooled: Collection[str]) -> ParsedPlan:
        """All that was read, in a fixed order."""
        layer = tuple(self.rows[f"layer {n}"] for n in range(1, self.layers + 1))
        above = zip(self.tasks, self.rows.get("pooler", layer[-1]), strict=True)
        pooler = named(self.tasks, (name if task in pooled else None for task, name in above))
        links = self.reads
        reads = (
            tuple(links[s, task] for s in self.tasks if (s, task) in links) for task in self.tasks
        )
        return ParsedPlan(
            embeddings=self.rows["embeddings"],
            layer=layer,
            pooler=pooler,
            late=tuple(self.rows[f"late {n}"] for n in range(1, self.late + 1)),
            adapters=tuple(sorted(self.adapters, key=adapter_order)),
            reads=tuple(reads),
            frozen=self.frozen,
        )

    # One method per kind of term.

    def read_sharing(self, term: str) -> None:
        if self.sharing:
            reason = f"{self.sharing!r} and {term!r} both say what is shared; keep one"
            raise PlanError(f"{reason}, and change single rows with row@", "")
        self.sharing = term
        if word(term) != "split":
            if term != word(term):
                raise PlanError(f"{word(term)!r} stands alone, and not as {term!r}", word(term))
            self.rows = dict.fromkeys(self.rows, self.all if term == "full" else self.separate)
        elif match := re.fullmatch(rf"split@{NUMBER}((?:/.*)?)", term):
            depth = self.depth(match[1], "split@#" + match[2])
            apart = self.partition(match[2], term) if match[2] else self.separate
            for n in range(depth + 1, self.layers + 1):
                self.rows[f"layer {n}"] = apart
        elif re.fullmatch(rf"split@[\w-]+:{NUMBER}(,[\w-]+:{NUMBER})*", term):
            self.read_split_per_task(term)
        else:
            reason = f"{term!r} does not say after which layer to split: split@{self.layers // 2}, "
            reason += "split@3/a+b (groups above it) or split@a:2,b:4 (per task)"
            raise PlanError(reason, f"split@{self.layers // 2}")

    def read_split_per_task(self, term: str) -> None:
        """Each task leaves the common part after its own layer; the unnamed stay to the top."""
        leaves: dict[str, int] = {}
        parts = term.removeprefix("split@").split(",")
        for i, part in enumerate(parts):
            task, number = part.split(":")
            before, after = parts[:i], parts[i + 1 :]
            self.check_task(task, term)
            if task in leaves:
                rest = ",".join(before + after)
                raise PlanError(f"{task!r} leaves twice in {term!r}", f"split@{rest}")
            form = "split@" + ",".join([*before, f"{task}:#", *after])
            leaves[task] = self.depth(number, form)
        for n in range(1, self.layers + 1):
            labels = ("" if leaves.get(t, self.layers) >= n else t for t in self.tasks)
            self.rows[f"layer {n}"] = named(self.tasks, labels)

    def read_row(self, term: str) -> None:
        place, slash, groups = term.removeprefix("row").removeprefix("@").partition("/")
        names = self.partition(slash + groups, term) if slash else self.separate
        self.set_rows(self.places(place, slash + groups), names, term)

    def read_late(self, term: str) -> None:
        if self.late:
            raise PlanError(f"{term!r} is a second line of late layers; keep one", "")
        pattern, slash, groups = term.removeprefix("late").removeprefix(":").partition("/")
        if not re.fullmatch("[IS]+", pattern):
            letters = re.sub("[^IS]", "", pattern.upper()) or "S"
            reason = f"{term!r} needs a letter for every late layer: S (shared) or I (one per task)"
            raise PlanError(reason, f"late:{letters}{slash}{groups}")
        if len(pattern) > MOST_LATE:
            reason = f"{len(pattern):,} late layers are more than {MOST_LATE}"
            raise PlanError(reason, f"late:{pattern[:MOST_LATE]}{slash}{groups}")
        shared = self.partition(slash + groups, term) if slash else self.all
        self.late = len(pattern)
        for n, letter in enumerate(pattern, 1):
            self.rows[f"late {n}"] = shared if letter == "S" else self.separate

    def read_adapter(self, term: str) -> None:
        match = re.fullmatch(
            rf"(\w+):{NUMBER}(?:x{NUMBER})?((?::[a-z]+)?)((?:@{NUMBER}(?:-{NUMBER})?)?)((?:/.*)?)",
            term,
        )
        if not match or (match[3] and match[1] != "pal") or (match[4] and match[1] != "lora"):
            reason = f"{term!r} does not have the form of an adapter, like pal:64, pal:64x8@4-6, "
            number = re.search("[0-9]{1,6}", term)
            suggestion = f"{word(term)}:{number[0] if number else 64}"
            raise PlanError(reason + "lora:8:qv or bottleneck:64/a/b+c", suggestion)
        kind, size, letters, groups = cast(Kind, match[1]), int(match[2]), match[4][1:], match[8]
        form = f"{kind}:#{match[4]}{match[5]}{groups}"
        if size < 1:
            least = self.heads if kind == "pal" else 1
            raise PlanError(
                f"the size in {term!r} must be at least 1", form.replace("#", f"{least}")
            )
        if size > MOST_SIZE:
            raise PlanError(
                f"the size in {term!r} is more than {MOST_SIZE:,}",
                form.replace("#", f"{MOST_SIZE}"),
            )
        heads = self.heads_of_pal(size, match[3], term, form) if kind == "pal" else 0
        first, last = 1, self.layers
        if match[5]:
            first, last = self.between(match[6], match[7], "@", term, self.layers)
        names = self.partition(groups, term, alone=False) if groups else self.separate
        matrices = ""
        if kind == "lora":
            matrices = "".join(m for m in MATRICES if m in (letters or "qv"))
            if letters and sorted(letters) != sorted(matrices):
                reason = (
                    f"{term!r} names matrices with other letters than {' '.join(MATRICES)}, or "
                )
                reason += "one twice"
                better = f":{matrices}" if matrices else ""
                raise PlanError(reason, f"lora:{size}{better}{match[5]}{groups}")
        self.add_adapter(Adapter(kind, size, first, last, names, heads, matrices), term)

    def read_feed(self, term: str) -> None:
        sign, _, chain = term.removeprefix("feed").partition(":")
        share = self.feed_share(sign, term)
        tasks = chain.split(">")
        for i, task in enumerate(tasks):
            rest = [t for t in tasks[:i] + tasks[i + 1 :] if t]
            suggestion = f"feed{sign}:{'>'.join(rest)}" if len(rest) > 1 else ""
            if not task or len(tasks) < 2:
                reason = (
                    f"{term!r} needs a source and a reader, like feed:{'>'.join(self.tasks[:2])}"
                )
                raise PlanError(reason, suggestion)
            self.check_task(task, term)
            if task in tasks[:i]:
                raise PlanError(f"{task!r} would read itself in {term!r}", suggestion)
            for source in tasks[:i]:
                if circle := self.find_circle(source, task):
                    raise PlanError(f"the feeds go in a circle, {' > '.join(circle)}", suggestion)
                read = Read(source, share)
                before = self.reads.setdefault((source, task), read)
                if before != read:
                    kinds = " and with ".join(sorted(f"feed{r.sign}" for r in (before, read)))
                    raise PlanError(
                        f"{task!r} reads {source!r} both with {kinds}; keep one", suggestion
                    )

    def read_frozen(self, term: str) -> None:
        if self.frozen is not None:
            raise PlanError(f"{term!r} is a second word on what is frozen; keep one", "")
        match = re.fullmatch(f"frozen(?:@{NUMBER})?", term)
        if not match:
            reason = f"{term!r} is neither frozen (the whole trunk) nor frozen@3 (layers 1 to 3)"
            raise PlanError(reason, "frozen")
        self.frozen = self.depth(match[1], "frozen@#") if match[1] else self.layers

    # Their parts.

    def feed_share(self, sign: str, term: str) -> float | None:
        """What of the reader's gradient moves the head that it reads; None: it ends there."""
        if sign in ("", "~"):
            return 0.0 if sign else None
        match = re.fullmatch(r"~(0?\.[0-9]{1,4}|[01](?:\.0{1,4})?)", sign)
        if match is None:
            reason = f"{term!r} moves what is read by a share that is no number from 0 to 1"
            raise PlanError(f"{reason} of at most 4 digits", f"feed~0.1:{term.partition(':')[2]}")
        return float(match[1])

    def check_task(self, task: str, term: str) -> None:
        """Refuse a task that does not exist."""
        if task not in self.tasks:
            close = difflib.get_close_matches(task, self.tasks, 1)
            whole = rf"(?<![\w-]){re.escape(task)}(?![\w-])"
            better = re.sub(whole, close[0], term) if close else None
            reason = (
                f"{term!r} names the unknown task {task!r}; the tasks are {', '.join(self.tasks)}"
            )
            raise PlanError(reason, better)

    def partition(self, groups: str, term: str, alone: bool = True) -> Names:
        """Names for `/a+b/c`; who is not named stands alone, or has nothing here."""
        head = term.removesuffix(groups)
        labels: dict[str, int] = {}
        cut = [part.split("+") for part in groups.removeprefix("/").split("/")]
        if cut == [["all"]]:
            return self.all
        if ["all"] in cut:
            raise PlanError(f"'all' in {term!r} leaves nobody for a second group", f"{head}/all")
        for g, members in enumerate(cut):
            for m, task in enumerate(members):
                if not task or task in labels:
                    rest = [*cut[:g], members[:m] + members[m + 1 :], *cut[g + 1 :]]
                    suggestion = head + "".join("/" + "+".join(part) for part in rest if part)
                    what = f"{task!r} stands in two groups" if task else "a name is missing"
                    raise PlanError(f"{what} in {term!r}", suggestion)
                self.check_task(task, term)
                labels[task] = g
        return named(self.tasks, (labels.get(t, t if alone else None) for t in self.tasks))

    def depth(self, text: str, form: str) -> int:
        """A number of layers from the top, 0 to all of them; `form` has # in its place."""
        number = int(text)
        if 0 <= number <= self.layers:
            return number
        term, best = (
            form.replace("#", text),
            form.replace("#", f"{self.layers if number > 0 else 0}"),
        )
        if number < 0:
            raise PlanError(f"{term!r} has a negative number of layers", best)
        what = f"which has {self.layers} layers"
        if self.layers == 1:
            what = "whose only layer has no middle to split at"
        raise PlanError(f"{term!r} is deeper than the trunk, {what}", best)

    def between(
        self, first: str, last: str | None, before: str, term: str, end: int
    ) -> tuple[int, int]:
        """Layers `first` to `last`, both counted from 1; without `last` one layer."""
        numbers = int(first), int(last or first)
        if 1 <= numbers[0] <= numbers[1] <= end:
            return numbers
        low, high = sorted(min(max(n, 1), end) for n in numbers)
        better = re.sub(f"{before}{NUMBER}(-{NUMBER})?", before + span(low, high), term, count=1)
        raise PlanError(f"{term!r} does not name layers from 1 to {end}, upwards", better)

    def places(self, place: str, groups: str = "") -> list[str]:
        """Rows that a place such as `embeddings`, `3`, `5-6` or `late2` stands for."""
        place = re.sub(r"\s+", "", place)
        if place in ("embeddings", "pooler"):
            return [place]
        match = re.fullmatch(f"(layer|late|){NUMBER}(?:-{NUMBER})?", place)
        if not match:
            close = difflib.get_close_matches(place, ["embeddings", "pooler"], 1)
            reason = f"there is no row {place!r}: say embeddings, pooler, 3, 5-6 or late1"
            raise PlanError(reason, f"row@{close[0]}{groups}" if close else None)
        kind, end = (match[1] or "layer"), self.layers
        if kind == "late":
            end = self.late
            if not end:
                raise PlanError(f"the row {place!r} needs late layers, like late:IS", "")
        term = f"row@{place}{groups}"
        first, last = self.between(match[2], match[3], f"@{match[1]}", term, end)
        return [f"{kind} {n}" for n in range(first, last + 1)]

    def set_rows(self, places: Iterable[str], names: Names, term: str) -> None:
        """Change single rows, each once."""
        for place in places:
            if place in self.changed:
                raise PlanError(f"{term!r} changes the row {place!r} a second time", "")
            self.changed.add(place)
            self.rows[place] = names

    def add_adapter(self, new: Adapter, term: str) -> None:
        """Add an adapter; terms that differ in their tasks only are one adapter."""
        for i, old in enumerate(self.adapters):
            if old.place != new.place:
                continue
            pairs = zip(self.tasks, old.names, new.names, strict=True)
            twice = [task for task, a, b in pairs if a and b]
            if twice:
                reason = f"{twice[0]!r} has {new.place!r} already; {term!r} gives it again"
                raise PlanError(reason, "")
            names = tuple(a or b for a, b in zip(old.names, new.names, strict=True))
            self.adapters[i] = replace(old, names=names)
            return
        self.adapters.append(new)

    def heads_of_pal(self, size: int, given: str | None, term: str, form: str) -> int:
        """Heads as given, or the most that divide the size."""
        by = int(given) if given else self.heads
        if by < 1:
            raise PlanError(f"{term!r} needs at least one head", form.replace("#", f"{size}"))
        best = f"{max(1, round(size / by)) * by}"
        if given and size % by:
            reason = f"the size {size} in {term!r} is not divisible by {by} heads"
            raise PlanError(reason, form.replace("#", f"{best}x{by}"))
        heads = by if given else pal_heads(size, self.heads)
        if not heads:
            reason = (
                f"the size {size} in {term!r} is not divisible by the trunk's {by} heads, nor by "
            )
            reason += f"4 or more below that (few heads can be said: pal:{size}x1)"
            raise PlanError(reason, form.replace("#", best))
        return heads

    def find_circle(self, start: str, goal: str) -> list[str]:
        """The feeds that lead from `goal` to `start`, and round to `goal`; empty if none do."""
        paths = [[start]]
        seen = {start}
        for path in paths:
            for source, reader in self.reads:
                if reader == path[0] and source not in seen:
                    seen.add(source)
                    paths.append([source, *path])
        return next(([*path, goal] for path in paths if path[0] == goal), [])


# The words of the language, in the order in which their terms are read.
WORDS: dict[str, Callable[[PlanBuilder, str], None]] = {
    "full": PlanBuilder.read_sharing,
    "separate": PlanBuilder.read_sharing,
    "split": PlanBuilder.read_sharing,
    "late": PlanBuilder.read_late,
    "row": PlanBuilder.read_row,
    "pal": PlanBuilder.read_adapter,
    "lowrank": PlanBuilder.read_adapter,
    "lora": PlanBuilder.read_adapter,
    "bottleneck": PlanBuilder.read_adapter,
    "feed": PlanBuilder.read_feed,
    "feed~": PlanBuilder.read_feed,
    "frozen": PlanBuilder.read_frozen,
}
