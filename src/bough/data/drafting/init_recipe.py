"""Data files become a recipe that trains as it is.

Splits are known by the files' names; where there is no dev file, `split` sets rows aside. Nothing
that exists is overwritten, and everything that was assumed is said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bough.data import audit, checked_rows
from bough.data.drafting import infer_columns, infer_kind
from bough.data.drafting.column import Column
from bough.data.drafting.file_roles import grouped, unique_name
from bough.data.label_cells import label_cells
from bough.data.prepared.part import Use
from bough.data.prepared.streams import open_table
from bough.data.split import joined, split_off
from bough.data.tables import Wanted
from bough.errors import UserError, listed, nearest
from bough.files import write_atomically
from bough.recipe import yaml
from bough.recipe.recipe import Recipe
from bough.recipe.tasks import SPLITS, Split, Task, on_one_table
from bough.templates import environment
from bough.user_paths import check_name

ROLES = {"train": "to learn from", "dev": "to choose the model by", "test": "for the end"}


@dataclass(frozen=True)
class Drafted:
    """One task as guessed: its recipe entry and what there is to say about it."""

    name: str
    task: Task
    says: tuple[str, ...]  # the guess and its reasons
    hints: tuple[str, ...]
    new: Mapping[Path, str]  # files to write, and what goes into them
    lost: tuple[str, ...]  # reports on rows that were left out of the new files
    bad: tuple[str, ...]  # and on those that the recipe must skip

    @property
    def numbered(self) -> str:
        """How classes that are numbers get names, as an example; nothing if they are words."""
        numbers = [str(label) for label in self.task.labels or ()]
        if not numbers or not all(number.lstrip("-").isdigit() for number in numbers):
            return ""
        more = ", ..." if len(numbers) > 2 else ""
        return ", ".join(f"{n}: a name" for n in numbers[:2]) + more


@dataclass(frozen=True)
class Written:
    """What `init` did, to be told: printed, it is what the command line says."""

    recipe: Path
    tasks: tuple[Drafted, ...]
    files: tuple[Path, ...]
    noticed: Mapping[str, tuple[str, ...]]  # about each task's rows

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        for task in self.tasks:
            yield f"{task.name}:"
            yield from (f"  {line}" for line in (*task.says, *task.lost, *task.bad))
            yield from (f"  {note}" for note in self.noticed[task.name])
            yield from (f"  or: {hint}" for hint in task.hints)
        run = _run(self.recipe, self.tasks)
        yield from ("", f"Written: {', '.join(map(str, self.files))}", "", "Next:")
        yield f"  bough train {shlex.quote(str(self.recipe))} -o {run}"
        yield f"  bough predict {run} FILE"


def init(
    files: Sequence[str | Path],
    out: str | Path = "recipe.yaml",
    text: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Written:
    """Look at data files, guess the tasks and write a recipe that trains them.

    Args:
        files: CSV, TSV, JSONL, Parquet or CoNLL files, of one task or of several.
        out: Where the recipe is written. Where a task has no dev file, rows are set aside
            in two files beside it. Nothing that is there is overwritten.
        text: The text's column, or two for a pair, if it is not to be guessed.
        labels: The label's column; several make several tasks.

    Returns:
        What was guessed, why, and what was written; print it.

    Raises:
        UserError: A file cannot be read, or two readings of it are as good as each other.

    Example:
        >>> import csv
        >>> with open("moods.csv", "w", newline="") as file:
        ...     rows = [(f"day {n} was fine", "glad") for n in range(20)]
        ...     rows += [(f"day {n} was grey", "sad") for n in range(20)]
        ...     csv.writer(file).writerows([("text", "mood"), *rows])
        >>> print(bough.init(["moods.csv"], "moods.yaml"))  # doctest: +ELLIPSIS
        moods:
          text   text: 4 words on average
          label  mood: the only column with few values; classify, 2 classes (glad, sad): ...
    """
    out = Path(out)
    for file in files:
        check_name(Path(file))
    _may_write(out)
    _check_columns(text, labels)
    drafted = _drafts(files, out, text, labels)
    every = {path: content for task in drafted for path, content in task.new.items()}
    new = {path: content for path, content in every.items() if not path.exists()}
    new[out] = _recipe(out, drafted, files)
    for path, content in new.items():
        write_atomically(path, content)
    try:  # as it was written it must be one that trains
        recipe = Recipe.read(out)
        gaps = on_one_table(recipe.tasks)
        loaded = {
            name: checked_rows.load(
                name, task, root=recipe.root, policy=recipe.rows, gaps=name in gaps
            )
            for name, task in recipe.tasks.items()
        }
    except UserError:
        for path in new:  # leave nothing behind that does not work
            path.unlink()
        raise
    noticed = {name: tuple(audit.notes(task, rows)) for name, (task, rows) in loaded.items()}
    return Written(out, tuple(drafted), tuple(new), noticed)


def _check_columns(text: Sequence[str], labels: Sequence[str]) -> None:
    for option, names in (("--text", text), ("--label", labels)):
        for place, name in enumerate(names):
            if name in names[:place]:
                raise UserError(f"{option} {name} was given twice; name each column once")
    for name in text:
        if name in labels:
            raise UserError(f"column {name!r} is both --text and --label; name two columns")
    if len(text) > 2:
        raise UserError(f"--text was given {len(text)} times; a task judges one text or a pair")


def _drafts(
    files: Sequence[str | Path], out: Path, text: Sequence[str], labels: Sequence[str]
) -> list[Drafted]:
    """The tasks of all files."""
    drafted: list[Drafted] = []
    found = grouped(files)
    alone = len(found) == 1
    if not alone:
        _check_named((*text, *labels), [next(iter(splits.values())) for splits in found.values()])
    for name, splits in found.items():
        taken = [task.name for task in drafted]
        try:
            drafted += _draft(name, splits, out, text, labels, taken, alone)
        except UserError as error:
            plain = [str(file) for file in splits.values() if file.suffix.lower() == ".txt"]
            if not plain:
                raise
            raise UserError(
                f"{error}; {plain[0]} was read as a table with a line of column names: plain "
                "lines of text have no labels to learn from"
            ) from None
    return drafted


def _may_write(out: Path) -> None:
    if out.suffix not in (".yaml", ".yml"):
        raise UserError(f"{out}: a recipe's name ends in .yaml; choose such a name with -o")
    if out.exists():
        raise UserError(
            f"{out} is there already and is not overwritten; choose another name with -o"
        )
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}; make it first")


def _check_named(names: Sequence[str], files: Sequence[Path]) -> None:
    """Each column that was named is in one of the tables."""
    there = list(dict.fromkeys(name for file in files for name in _names(file))) if names else []
    for name in names:
        if name not in there:
            raise UserError(
                f"none of {listed(list(map(str, files)))} has a column {name!r}; they have "
                f"{listed(there)}{nearest(name, there)}"
            )


# --- one task ------------------------------------------------------------------------------------


def _names(file: Path) -> tuple[str, ...]:
    names = open_table(str(file), Wanted((), "", False), Path.cwd(), str(file)).names
    return tuple(name for name in dict.fromkeys(names) if name)


def _columns(file: Path) -> dict[str, list[Any]]:
    """Every named column of a file."""
    return open_table(str(file), Wanted(_names(file), "", True), Path.cwd(), str(file)).columns


@dataclass(frozen=True)
class Guessed:
    """A task before its rows are known."""

    name: str
    settings: dict[str, Any]
    says: tuple[str, ...]
    hints: tuple[str, ...]


def _draft(
    name: str,
    splits: dict[Split, Path],
    out: Path,
    text: Sequence[str],
    labels: Sequence[str],
    taken: Sequence[str],
    alone: bool,
) -> list[Drafted]:
    """The tasks of one table: of each label column that is named, or called like one."""
    columns = {split: _columns(file) for split, file in splits.items()}
    source, table = str(next(iter(splits.values()))), next(iter(columns.values()))
    if not alone:  # what was named is of the tables that have it
        text, labels = ([n for n in names if n in table] for names in (text, labels))
    chosen = labels or infer_columns.known_labels(table, text)
    guessed: list[Guessed] = []
    for label in chosen if len(chosen) > 1 or labels else (None,):
        full_name = f"{name}-{label}" if len(chosen) > 1 else name
        unique = unique_name(full_name, [*taken, *(task.name for task in guessed)])
        guessed.append(_guess(unique, columns, source, text, label, by_name=not labels))
    new: dict[Path, str] = {}
    cut, lost = "", ""
    paths = {split: _from(out, file) for split, file in splits.items()}
    to_describe = dict(splits)
    if not {"train", "dev"} <= splits.keys():
        tasks = {task.name: Task(**task.settings) for task in guessed}
        stem = name if len(tasks) > 1 else guessed[0].name
        new, cut, lost = _cut(stem, tasks, splits, out)
        paths |= {split: _from(out, path) for split, path in zip(SPLITS, new, strict=False)}
        to_describe = {"test": splits["test"]} if "test" in splits else {}
    return [
        _described(task, paths, to_describe, new, cut, lost, gaps=len(guessed) > 1)
        for task in guessed
    ]


def _guess(
    name: str,
    columns: Mapping[Split, Mapping[str, list[Any]]],
    source: str,
    text: Sequence[str],
    label: str | None,
    by_name: bool,
) -> Guessed:
    guess = infer_columns.columns(next(iter(columns.values())), source, text, label)
    cells = [cell for part in columns.values() for cell in part.get(guess.label, ())]
    known = Column.of(guess.label, cells)
    kind, why_kind = infer_kind.kind(known, source)
    found, what = infer_kind.settings(kind, known)
    settings: dict[str, Any] = {"kind": kind, "text": guess.text, "label": guess.label, **found}
    why_label = "by its name" if label is not None and by_name else guess.why_label
    says = (
        f"text   {listed(guess.text)}: {guess.why_text}",
        f"label  {guess.label}: {why_label}; {kind}, {what}: {why_kind}",
    )
    return Guessed(name, settings, says, guess.hints)


def _described(
    guessed: Guessed,
    paths: Mapping[Split, str],
    files: Mapping[Split, Path],
    new: Mapping[Path, str],
    cut: str,
    lost: str,
    gaps: bool,
) -> Drafted:
    """The task with its rows, and what there is to say about them."""
    given = {split: paths[split] for split in SPLITS if split in paths}
    task = Task(**guessed.settings, **given)
    says, bad = [*guessed.says, *([cut] if cut else [])], []
    for split, file in files.items():  # read as training will
        use: Use = "optional" if split == "test" else "needed"
        part = checked_rows.read(
            guessed.name, task, str(file), root=Path.cwd(), policy="skip", labels=use, gaps=gaps
        )
        bare = "" if part.labels is not None else ", without labels"
        bare += f", {part.gaps:,} more without a label" if part.gaps else ""
        says.append(f"rows   {file.name}: {len(part):,} {ROLES[split]}{bare}")
        bad.append(part.report(2))
    return Drafted(
        guessed.name, task, tuple(says), guessed.hints, new, (lost,) if lost else (),
        tuple(filter(None, bad)),
    )  # fmt: skip


def _cut(
    stem: str, tasks: Mapping[str, Task], splits: dict[Split, Path], out: Path
) -> tuple[dict[Path, str], str, str]:
    """Contents of a train and a dev file made of the only one of them that there is, with the
    labels of all tasks on it; a sentence on them, and one on the rows that were left out."""
    source = splits.get("train") or splits["dev"]
    several = len(tasks) > 1
    rows = {
        name: checked_rows.read(
            name, task, str(source), root=Path.cwd(), policy="skip", labels="needed", gaps=several
        )
        for name, task in tasks.items()
    }
    whole = joined(tasks, rows)
    size = len(whole.rows) if several else None
    stratum = label_cells(next(iter(tasks.values()))).stratum
    train, dev = split_off(whole.rows, stratum, size)
    given = [file.resolve() for file in splits.values()]
    if any((out.parent / f"{stem}-{split}.csv").resolve() in given for split in SPLITS):
        stem += "-part"  # beside the file that it is cut from
    new = {
        out.parent / f"{stem}-train.csv": whole.csv(train),
        out.parent / f"{stem}-dev.csv": whole.csv(dev),
    }
    for path, content in new.items():  # one that is there must be the one that would be written
        if path.exists() and not (path.is_file() and path.read_bytes() == content.encode()):
            raise UserError(
                f"{path} is there already, with other rows, and is not overwritten; give it as a "
                "file, too, move it away, or write the recipe into another folder with -o"
            )
    lacks = "has no dev file" if "train" in splits else "is called dev, and there is no train file"
    cut = (
        f"rows   {source.name} {lacks}: cut into {stem}-train.csv ({len(train):,} rows) and "
        f"{stem}-dev.csv ({len(dev):,})"
    )
    return new, cut, next(iter(rows.values())).report(2)


# --- the recipe ----------------------------------------------------------------------------------


def _from(out: Path, file: Path) -> str:
    """A file as the recipe names it: from the recipe's folder where it is inside, else in full."""
    here, there = out.parent.resolve(), file.resolve()
    return (there.relative_to(here) if there.is_relative_to(here) else there).as_posix()


def _recipe(out: Path, drafted: Sequence[Drafted], files: Sequence[str | Path]) -> str:
    templates = environment("bough.data.drafting")
    templates.filters |= {"comment": _comment, "listed": listed, "yaml": _value}
    return templates.get_template("recipe.yaml").render(
        files=[Path(file).name for file in files],
        recipe=shlex.quote(str(out)),
        run=_run(out, drafted),
        tasks=drafted,
        bad=[report for task in drafted for report in task.bad],
    )


def _comment(text: str) -> str:
    """A comment ends with its line, and YAML takes no control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _value(value: Any, key: str) -> str:
    parts = value if isinstance(value, list) else [value]
    if key == "labels":
        parts = [int(name) if re.fullmatch(r"0|-?[1-9]\d{0,8}", name) else name for name in parts]
    if key == "range":
        parts = [int(end) if float(end).is_integer() else end for end in parts]
    # ${NAME} would be taken for a variable of the environment.
    parts = [part.replace("${", "$${") if isinstance(part, str) else part for part in parts]
    text = yaml.write(parts).strip()
    return (text if isinstance(value, list) else text[1:-1]).replace("\n", "\n      ")


def _run(out: Path, drafted: Sequence[Drafted]) -> str:
    name = "-".join(task.name for task in drafted[:3]) if out.stem == "recipe" else out.stem
    return shlex.quote(f"runs/{name}")
