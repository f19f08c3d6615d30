"""Init: data files become a recipe that trains as it is.

Splits are known by the files' names; where there is no dev file, `holdout` sets rows aside. Nothing
that exists is overwritten, and everything that was assumed is said.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bough.data import infer, rows
from bough.data.rows import Rows
from bough.data.split import split_off
from bough.data.tables import Wanted, open_table
from bough.errors import UserError, listed
from bough.files import write_atomically
from bough.paths import check_name
from bough.recipe import yaml
from bough.recipe.recipe import RESERVED, Recipe
from bough.recipe.tasks import SPLITS, Split, Task

WORDS: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("dev", "devel", "development", "valid", "validation", "val"), "dev"),
    **dict.fromkeys(("test", "testing"), "test"),
}


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


@dataclass(frozen=True)
class Written:
    """What `init` did, to be told."""

    recipe: Path
    tasks: tuple[Drafted, ...]
    files: tuple[Path, ...]

    def lines(self) -> Iterator[str]:
        for own in self.tasks:
            yield f"{own.name}:"
            yield from (f"  {line}" for line in own.says)
            yield from (f"  {line}" for line in (*own.lost, *own.bad))
            yield from (f"  or: {hint}" for hint in own.hints)
        yield ""
        yield f"Written: {', '.join(map(str, self.files))}"
        yield ""
        yield "Next:"
        run = _run(self.recipe, self.tasks)
        yield f"  bough train {_typed(self.recipe)} -o {run}"
        yield f"  bough predict {run} FILE"


def init(
    files: Sequence[str | Path],
    out: str | Path = "recipe.yaml",
    text: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Written:
    """Look at the files, guess the tasks, write the recipe and the splits it needs."""
    out = Path(out)
    for file in files:
        check_name(Path(file))
    _may_write(out)
    if len(text) > 2:
        raise UserError(f"--text was given {len(text)} times; a task judges one text or a pair")
    drafted: list[Drafted] = []
    for name, splits in _grouped(files).items():
        for label in labels or (None,):
            own = f"{name}-{label}" if len(labels) > 1 else name
            unique = _unique(own, [known.name for known in drafted])
            drafted.append(_draft(unique, splits, out, text, label, len(labels) > 1))
    new = {path: content for own in drafted for path, content in own.new.items()}
    new = {path: content for path, content in new.items() if not path.exists()}
    new[out] = _recipe(out, drafted, files)
    for path, content in new.items():
        write_atomically(path, content)
    try:
        _checked(out)
    except UserError:
        for path in new:  # leave nothing behind that does not work
            path.unlink()
        raise
    return Written(out, tuple(drafted), tuple(new))


def _may_write(out: Path) -> None:
    if out.suffix not in (".yaml", ".yml"):
        raise UserError(f"{out}: a recipe's name ends in .yaml; choose such a name with -o")
    if out.exists():
        raise UserError(
            f"{out} is there already and is not overwritten; choose another name with -o"
        )
    if not out.absolute().parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}; make it first")


def _checked(out: Path) -> None:
    """The recipe as it was written must be one that trains."""
    recipe = Recipe.read(out)
    for name, task in recipe.tasks.items():
        rows.load(name, task, root=recipe.root, policy=recipe.rows)


# --- which file is what --------------------------------------------------------------------------


def _grouped(files: Sequence[str | Path]) -> dict[str, dict[Split, Path]]:
    """Task name -> split -> file, by the files' names; a file without a split's name is train."""
    found: dict[str, dict[Split, Path]] = {}
    for file in map(Path, files):
        name, split = _parted(file)
        splits = found.setdefault(name, {})
        split = split or "train"
        if split in splits:
            raise UserError(
                f"{splits[split]} and {file} both look like the {split} rows of {name!r}; give "
                "one of them, or put train, dev or test into the names"
            )
        splits[split] = file
    for name, splits in found.items():
        found[name] = {split: splits[split] for split in SPLITS if split in splits}
        if not {"train", "dev"} & set(splits):
            raise UserError(
                f"{splits['test']} is by its name for testing, and there are no rows to learn from "
                f"for {name!r}; give those, too, or rename the file"
            )
    return found


def _parted(file: Path) -> tuple[str, Split | None]:
    """A file's task and split: ids-sst-test-student.csv is ids-sst, test."""
    words = re.split(r"[^A-Za-z0-9]+", file.stem)
    at = next((i for i, word in enumerate(words) if word.lower() in WORDS), None)
    split = None if at is None else WORDS[words[at].lower()]
    own = words if at is None else words[:at] or words[at + 1 :]
    while len(own) > 1 and own[-1].lower() in ("all", "full", "data"):
        own = own[:-1]
    name = "-".join(filter(None, own))
    if not name:  # train.csv, dev.csv: the folder says whose
        name = "-".join(filter(None, re.split(r"[^A-Za-z0-9]+", file.absolute().parent.name)))
    return name or "task", split


def _unique(name: str, taken: Sequence[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    name = f"{name}-task" if name in RESERVED else name
    number = 2
    chosen = name
    while chosen in taken:
        chosen, number = f"{name}-{number}", number + 1
    return chosen


# --- one task ------------------------------------------------------------------------------------


@dataclass
class _Tables:
    """The columns of each split's file."""

    splits: dict[Split, Path]
    columns: dict[Split, dict[str, list[Any]]] = field(default_factory=dict)

    def read(self) -> None:
        for split, file in self.splits.items():
            root = Path.cwd()
            names = open_table(str(file), Wanted((), "", False), root, str(file)).names
            real = tuple(name for name in dict.fromkeys(names) if name)
            table = open_table(str(file), Wanted(real, "", True), root, str(file))
            self.columns[split] = table.columns

    def label(self, name: str) -> infer.Column:
        """The labels of all splits that have them."""
        cells = [cell for own in self.columns.values() for cell in own.get(name, ())]
        return infer.Column.of(name, cells)


def _draft(
    name: str,
    splits: dict[Split, Path],
    out: Path,
    text: Sequence[str],
    label: str | None,
    shared: bool,
) -> Drafted:
    learn: Split = "train" if "train" in splits else "dev"
    source = splits[learn]
    tables = _Tables(splits)
    tables.read()
    found = infer.columns(tables.columns[learn], str(source), text, label)
    known = tables.label(found.label)
    kind, why_kind = infer.kind(known, str(source))
    settings: dict[str, Any] = {
        "kind": kind,
        "text": found.text[0] if len(found.text) == 1 else list(found.text),
        "label": found.label,
    }
    if kind == "classify":
        settings["labels"] = list(known.classes)
        what = f"{len(known.classes)} classes ({listed(known.classes, 6)})"
    else:
        assert known.values is not None
        low, high = infer.scale(known.values)
        settings["range"] = [low, high]
        what = f"a number from {low:g} to {high:g}"
        why_kind += f"; they run from {min(known.values):g} to {max(known.values):g}"
    bare = Task(**settings)
    says = [
        f"text   {listed(found.text)}: {found.why_text}",
        f"label  {found.label}: {found.why_label}; {kind}, {what}: {why_kind}",
    ]
    new: dict[Path, str] = {}
    given = [file.resolve() for file in splits.values()]
    paths = {split: _from(out, file) for split, file in splits.items()}
    lost: list[str] = []
    bad: list[str] = []
    if learn == "dev" or "dev" not in splits:
        every = rows.read(name, bare, str(source), root=Path.cwd(), policy="skip", labels="needed")
        size = len(next(iter(tables.columns[learn].values())))
        train, dev = split_off(every, kind == "classify", size if shared else None)
        stem = name
        if any((out.parent / f"{stem}-{split}.csv").resolve() in given for split in SPLITS):
            stem += "-part"  # beside the file that it is cut from
        halves: list[tuple[Split, list[int]]] = [("train", train), ("dev", dev)]
        for split, part in halves:
            path = out.parent / f"{stem}-{split}.csv"
            new[path] = _table(bare, every, part)
            _may_replace(path, new[path])
            paths[split] = _from(out, path)
        if every.skipped:
            lost.append(every.report(2))
        lacks = "is called dev, and there is no train file" if learn == "dev" else "has no dev file"
        says.append(
            f"rows   {source.name} {lacks}: cut into {stem}-train.csv ({len(train):,} rows) and "
            f"{stem}-dev.csv ({len(dev):,})"
        )
    task = Task(**settings, **{split: paths[split] for split in SPLITS if split in paths})
    for split, file in splits.items():
        if paths[split] == _from(out, file):
            says.append(_described(name, task, split, file, bad))
    return Drafted(name, task, tuple(says), found.hints, new, tuple(lost), tuple(bad))


def _described(name: str, task: Task, split: Split, file: Path, bad: list[str]) -> str:
    """Read the split as training will; say what it is."""
    use: rows.Use = "optional" if split == "test" else "needed"
    found = rows.read(name, task, str(file), root=Path.cwd(), policy="skip", labels=use)
    if found.skipped:
        bad.append(found.report(2))
    bare = "" if found.labels is not None else ", without labels"
    role = {"train": "to learn from", "dev": "to choose the model by", "test": "for the end"}
    return f"rows   {file.name}: {len(found):,} {role[split]}{bare}"


def _table(task: Task, every: Rows, numbers: Sequence[int]) -> str:
    """The rows as CSV, with the id or line they had in the file they are from."""
    assert every.labels is not None
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    own = "id" not in (*task.columns, task.label)
    table.writerow([*(["id"] if own else []), *task.columns, task.label])
    for n in numbers:
        label = every.labels[n]
        said = task.labels[int(label)] if task.labels else repr(float(label))
        table.writerow([*([every.ids[n]] if own else []), *every.texts[n], said])
    return text.getvalue()


def _may_replace(path: Path, content: str) -> None:
    """A file that is there must be the one that would be written."""
    if not path.exists():
        return
    if not path.is_file() or path.read_bytes() != content.encode():
        raise UserError(
            f"{path} is there already, with other rows, and is not overwritten; give it as a file, "
            "too, move it away, or write the recipe into another folder with -o"
        )


# --- the recipe ----------------------------------------------------------------------------------


def _from(out: Path, file: Path) -> str:
    """A file as the recipe names it: from the recipe's folder where it is inside, else in full."""
    here, there = out.absolute().parent.resolve(), file.absolute().resolve()
    path = there.relative_to(here) if there.is_relative_to(here) else there
    return path.as_posix()


def _recipe(out: Path, drafted: Sequence[Drafted], files: Sequence[str | Path]) -> str:
    several = len(drafted) > 1
    bad = [report for own in drafted for report in own.bad]
    lines = [
        f"# Guessed by bough init from {listed([Path(file).name for file in files], 4)}.",
        "# Change what you know better.",
        "#",
        f"#   bough train {_typed(out)} -o {_run(out, drafted)}",
        "",
        "encoder: minilm    # what is fine-tuned: a folder, a hub id, or minilm",
        "plan: full         # what the tasks share"
        + ("; try split@3 or pal:64, and compare" if several else "; with one task all is its own"),
        "data: .            # paths below start here",
        *(f"# {_one_line(report)}" for report in bad),
        f"rows: {'skip ' if bad else 'error'}        # at a bad row: error stops, skip goes on",
        "max_length: 512    # tokens; what is beyond is cut off",
        "tasks:",
    ]
    for own in drafted:
        lines += [f"  {own.name}:", *(f"    # {_one_line(line)}" for line in own.says)]
        told = own.task.model_dump(mode="json", exclude_unset=True)
        lines += [f"    {key}: {_value(key, value)}" for key, value in told.items()]
        metrics = "f1, or mcc" if own.task.kind == "classify" else "spearman"
        lines.append(f"    metric: {own.task.metric_name}    # or {metrics}")
    lines += [
        "training:",
        "  epochs: 3",
        "  batch: 32        # examples of a task in a step",
        "  lr: 5e-5         # for the encoder and the heads; larger encoders want less, 2e-5",
        *(["  sampling: sqrt   # larger tasks more often, by the square root of their rows"]
          if several else []),
        "  seed: 0",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """A comment ends with its line, and YAML takes no control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def _value(key: str, value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    if key == "labels":
        parts = [int(name) if re.fullmatch(r"0|-?[1-9]\d{0,8}", name) else name for name in parts]
    if key == "range":
        parts = [int(end) if float(end).is_integer() else end for end in parts]
    # ${NAME} would be taken for a variable of the environment.
    parts = [part.replace("${", "$${") if isinstance(part, str) else part for part in parts]
    text = yaml.write(parts).strip()
    return (text if isinstance(value, list) else text[1:-1]).replace("\n", "\n      ")


def _typed(path: str | Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


def _run(out: Path, drafted: Sequence[Drafted]) -> str:
    name = "-".join(task.name for task in drafted[:3]) if out.stem == "recipe" else out.stem
    return _typed(f"runs/{name}")
