"""Data files become a recipe that trains as it is.

Splits are known by the files' names; where there is no dev file, `split` sets rows aside. Nothing
that exists is overwritten, and everything that was assumed is said.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
        for task in self.tasks:
            yield f"{task.name}:"
            yield from (f"  {line}" for line in task.says)
            yield from (f"  {line}" for line in (*task.lost, *task.bad))
            yield from (f"  or: {hint}" for hint in task.hints)
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
            full_name = f"{name}-{label}" if len(labels) > 1 else name
            unique = _unique(full_name, [task.name for task in drafted])
            drafted.append(_draft(unique, splits, out, text, label, len(labels) > 1))
    new = {path: content for task in drafted for path, content in task.new.items()}
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
    tasks: dict[str, dict[Split, Path]] = {}
    for file in map(Path, files):
        name, split = _parted(file)
        splits = tasks.setdefault(name, {})
        split = split or "train"
        if split in splits:
            raise UserError(
                f"{splits[split]} and {file} both look like the {split} rows of {name!r}; give "
                "one of them, or put train, dev or test into the names"
            )
        splits[split] = file
    for name, splits in tasks.items():
        tasks[name] = {split: splits[split] for split in SPLITS if split in splits}
        if not {"train", "dev"} & set(splits):
            raise UserError(
                f"{splits['test']} is by its name for testing, and there are no rows to learn from "
                f"for {name!r}; give those, too, or rename the file"
            )
    return tasks


def _parted(file: Path) -> tuple[str, Split | None]:
    """A file's task and split: ids-sst-test-student.csv is ids-sst, test."""
    words = re.split(r"[^A-Za-z0-9]+", file.stem)
    at = next((i for i, word in enumerate(words) if word.lower() in WORDS), None)
    split = None if at is None else WORDS[words[at].lower()]
    kept = words if at is None else words[:at] or words[at + 1 :]
    while len(kept) > 1 and kept[-1].lower() in ("all", "full", "data"):
        kept = kept[:-1]
    name = "-".join(filter(None, kept))
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


def _columns(file: Path) -> dict[str, list[Any]]:
    """Every named column of a file."""
    names = open_table(str(file), Wanted((), "", False), Path.cwd(), str(file)).names
    named = tuple(name for name in dict.fromkeys(names) if name)
    return open_table(str(file), Wanted(named, "", True), Path.cwd(), str(file)).columns


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
    columns = {split: _columns(file) for split, file in splits.items()}
    guess = infer.columns(columns[learn], str(source), text, label)
    cells = [cell for part in columns.values() for cell in part.get(guess.label, ())]
    known = infer.Column.of(guess.label, cells)
    kind, why_kind = infer.kind(known, str(source))
    settings: dict[str, Any] = {
        "kind": kind,
        "text": guess.text[0] if len(guess.text) == 1 else list(guess.text),
        "label": guess.label,
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
    says = [
        f"text   {listed(guess.text)}: {guess.why_text}",
        f"label  {guess.label}: {guess.why_label}; {kind}, {what}: {why_kind}",
    ]
    new: dict[Path, str] = {}
    paths = {split: _from(out, file) for split, file in splits.items()}
    lost: list[str] = []
    bad: list[str] = []
    if learn == "dev" or "dev" not in splits:
        size = len(next(iter(columns[learn].values())))
        new, said = _cut(name, Task(**settings), splits, out, size if shared else None, lost)
        paths |= {split: _from(out, path) for split, path in zip(SPLITS, new, strict=False)}
        says.append(said)
    task = Task(**settings, **{split: paths[split] for split in SPLITS if split in paths})
    for split, file in splits.items():
        if paths[split] == _from(out, file):
            says.append(_described(name, task, split, file, bad))
    return Drafted(name, task, tuple(says), guess.hints, new, tuple(lost), tuple(bad))


def _cut(
    name: str,
    task: Task,
    splits: dict[Split, Path],
    out: Path,
    shared: int | None,
    lost: list[str],
) -> tuple[dict[Path, str], str]:
    """Contents of a train and a dev file made of the only one of them that there is; a sentence."""
    source = splits.get("train") or splits["dev"]
    every = rows.read(name, task, str(source), root=Path.cwd(), policy="skip", labels="needed")
    train, dev = split_off(every, task.kind == "classify", shared)
    given = [file.resolve() for file in splits.values()]
    stem = name
    if any((out.parent / f"{stem}-{split}.csv").resolve() in given for split in SPLITS):
        stem += "-part"  # beside the file that it is cut from
    new = {
        out.parent / f"{stem}-train.csv": _table(task, every, train),
        out.parent / f"{stem}-dev.csv": _table(task, every, dev),
    }
    for path, content in new.items():
        _may_replace(path, content)
    if every.skipped:
        lost.append(every.report(2))
    lacks = "has no dev file" if "train" in splits else "is called dev, and there is no train file"
    return new, (
        f"rows   {source.name} {lacks}: cut into {stem}-train.csv ({len(train):,} rows) and "
        f"{stem}-dev.csv ({len(dev):,})"
    )


def _described(name: str, task: Task, split: Split, file: Path, bad: list[str]) -> str:
    """Read the split as training will; say what it is."""
    use: rows.Use = "optional" if split == "test" else "needed"
    part = rows.read(name, task, str(file), root=Path.cwd(), policy="skip", labels=use)
    if part.skipped:
        bad.append(part.report(2))
    bare = "" if part.labels is not None else ", without labels"
    role = {"train": "to learn from", "dev": "to choose the model by", "test": "for the end"}
    return f"rows   {file.name}: {len(part):,} {role[split]}{bare}"


def _table(task: Task, every: Rows, numbers: Sequence[int]) -> str:
    """The rows as CSV, with the id or line they had in the file they are from."""
    assert every.labels is not None
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    with_id = "id" not in (*task.columns, task.label)
    table.writerow([*(["id"] if with_id else []), *task.columns, task.label])
    for n in numbers:
        label = every.labels[n]
        cell = task.labels[int(label)] if task.labels else repr(float(label))
        table.writerow([*([every.ids[n]] if with_id else []), *every.texts[n], cell])
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
    bad = [report for task in drafted for report in task.bad]
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
    for task in drafted:
        lines += [f"  {task.name}:", *(f"    # {_one_line(line)}" for line in task.says)]
        settings = task.task.model_dump(mode="json", exclude_unset=True)
        lines += [f"    {key}: {_value(key, value)}" for key, value in settings.items()]
        metrics = "f1, or mcc" if task.task.kind == "classify" else "spearman"
        lines.append(f"    metric: {task.task.metric_name}    # or {metrics}")
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
