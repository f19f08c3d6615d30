"""The run directory: the truth about a run, readable at any moment, whatever killed its writer.

`recipe.yaml` (complete, as resolved), `plan.txt`, `environment.json`, `metrics.jsonl` (a line per
log), `checkpoint/state.pt` (everything needed to go on, bit for bit), `model/` (the best so far,
loadable alone), and at the end `predictions/`, `cost.json` and `scores.json`. Every file but the
log is replaced whole; the log is cut back to the checkpoint's place when a run is resumed.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel

from bough.errors import UserError
from bough.files import Content, clear_parts, csv_writer, explained, write_atomically
from bough.plan.encoder_pooling import BEFORE_AUTO
from bough.recipe.recipe import Recipe
from bough.runs import run_files
from bough.runs.lock import locked


@dataclass(frozen=True)
class Run:
    """A run directory, open for reading: scores, cost, log, and where its model is.

    Attributes:
        folder: The directory itself.
        name: The directory's name.
        finished: Whether it came to its end; before, it has neither scores nor cost.
        plan: The plan's one-line text.
        scores: By split: each task's metrics under `tasks`, and the means `raw` and `normalised`.
        cost: Seconds, peak memory, parameters, bytes to serve, FLOPs per example.
        environment: Machine, versions, and the digests of the rows and the encoder.
        recipe_file: The recipe, complete; `bough.Recipe.read` reads it.
        model: The model's folder; `bough.load(run)` opens it.
        checkpoint: What `bough.resume` goes on from.

    Example:
        >>> run = bough.Run.open("runs/first")
        >>> sorted(run.scores["dev"]["tasks"])
        ['questions', 'sentiment', 'similarity']
    """

    folder: Path

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """The run in this folder, finished or not; a UserError if there is none."""
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise UserError(f"{path}: no such run directory")
        if not (path / "recipe.yaml").is_file():
            hint = f"; name {path.parent}" if (path.parent / "recipe.yaml").is_file() else ""
            raise UserError(f"{path}: not a run directory (it has no recipe.yaml){hint}")
        if not cls(path).begun:
            raise UserError(
                f"{path}: not a run directory (no run wrote its recipe.yaml); to train that: "
                f"bough train {path / 'recipe.yaml'}"
            )
        return cls(path)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def begun(self) -> bool:
        """Whether the recipe there is a run's: beside data lies one that somebody wrote."""
        beside = (".lock", "plan.txt", "environment.json")
        return self.recipe_file.is_file() and any((self.folder / f).is_file() for f in beside)

    @property
    def finished(self) -> bool:
        return (self.folder / "scores.json").is_file()

    @property
    def pretrained(self) -> bool:
        """Whether it is a pretraining: it leaves an encoder, and no tasks that answer."""
        return (self.folder / "encoder" / "config.json").is_file()

    @property
    def recipe_file(self) -> Path:
        return self.folder / "recipe.yaml"

    @property
    def environment_file(self) -> Path:
        return self.folder / "environment.json"

    def recipe(self, unset: Literal["error", "keep"] = "error") -> Recipe:
        """The recipe as it was begun: what an older one does not say is as it was then."""
        recipe = Recipe.read(self.recipe_file, unset=unset)
        then: dict[str, Any] = {"tasks": BEFORE_AUTO.resolve(recipe.tasks)}
        if "heads" not in recipe.training.model_fields_set:
            then["training"] = recipe.training.model_copy(update={"heads": "fresh"})
        return recipe.model_copy(update=then)

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint" / "state.pt"

    @property
    def plan(self) -> str:
        file = self.folder / "plan.txt"
        try:
            first = file.read_text(encoding="utf-8").partition("\n")[0].strip()
        except FileNotFoundError:
            raise UserError(f"{file}: not there; the run has not begun") from None
        except ValueError:
            first = ""
        if not first:
            raise UserError(f"{file}: is damaged, expected the plan; train the run anew")
        return first

    @property
    def scores(self) -> dict[str, Any]:
        return self._json("scores.json", run_files.Scores)

    @property
    def cost(self) -> dict[str, Any]:
        return self._json("cost.json", run_files.Cost)

    @property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json", run_files.Environment)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The log's lines; a last line cut short by a kill is left out."""
        file = self.folder / "metrics.jsonl"
        if not file.is_file():
            return
        lines = file.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                if number == len(lines):
                    return
                raise UserError(
                    f"{file}, line {number}: not JSON ({line[:60].decode(errors='replace')!r}); "
                    "remove that line, or train the run anew"
                ) from None
            wrong = f"{file}, line {number}: expected an entry of the log"
            mend = "remove that line, or train the run anew"
            yield run_files.check(run_files.Entry, entry, wrong, mend)

    def _json(self, name: str, form: type[BaseModel]) -> dict[str, Any]:
        file = self.folder / name
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{file}: not there; the run is not finished") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}: not JSON ({error})") from None
        return run_files.check(form, content, f"{file}: is damaged", "train the run anew")


PLACE = "choose another place for this one"


class Writer:
    """The one process that writes a run. A second one is refused."""

    def __init__(self, folder: Path):
        self.run = Run(folder)
        self._lock = ExitStack()
        self._lock.enter_context(locked(folder / ".lock"))
        self._log: IO[bytes] | None = None

    @classmethod
    def start(cls, folder: Path) -> Writer:
        """A new run; a directory that has one is left alone."""
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder}: is a file; give a directory for the run")
        run = Run(folder)
        if run.recipe_file.exists() and not run.begun:
            raise UserError(f"{folder}: has a recipe.yaml, which a run would write over; {PLACE}")
        writer = cls(folder)
        if run.recipe_file.exists():
            writer.close()
            how = "is finished" if run.finished else f"goes on with: bough train --resume {folder}"
            raise UserError(f"{folder}: has a run already, which {how}; {PLACE}")
        return writer

    @classmethod
    def resume(cls, folder: Path) -> Writer:
        writer = cls(Run.open(folder).folder)
        # Only what is known to be this run's: a user's folder may hold anything.
        run = writer.run
        for place in (run.folder, run.model, run.checkpoint.parent, run.folder / "predictions"):
            clear_parts(place)
        return writer

    def write(self, name: str, content: Content) -> None:
        path = self.run.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)

    def write_json(self, name: str, content: Any) -> None:
        self.write(name, json.dumps(content, indent=1) + "\n")

    def write_csv(self, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        text = io.StringIO(newline="")
        table = csv_writer(text)
        table.writerow(header)
        table.writerows(rows)
        self.write(name, text.getvalue())

    def log(self, entry: Mapping[str, Any]) -> None:
        """One more line of metrics.jsonl."""
        if self._log is None:
            # Unbuffered: a line that did not fit on the disk must not be tried again at the end.
            self._log = open(self.run.folder / "metrics.jsonl", "ab", buffering=0)  # noqa: SIM115
        line = json.dumps(entry).encode() + b"\n"
        try:
            _write_all(self._log, line)
        except OSError as error:
            raise explained(error, self.run.folder / "metrics.jsonl", len(line)) from None

    def logged(self) -> int:
        """Bytes of the log so far, safely on disk."""
        if self._log is None:
            return 0 if not (p := self.run.folder / "metrics.jsonl").exists() else p.stat().st_size
        os.fsync(self._log.fileno())
        return self._log.tell()

    def rewind(self, size: int) -> None:
        """Cut the log back to where it was when the checkpoint was written."""
        file = self.run.folder / "metrics.jsonl"
        if file.exists():
            os.truncate(file, size)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        if not self.run.recipe_file.exists():  # the run never began: leave no trace of it
            with suppress(OSError):
                (self.run.folder / ".lock").unlink()
                self.run.folder.rmdir()
        self._lock.close()


class Onlooker(Writer):
    """A process of a run that another one writes."""

    def __init__(self, folder: Path):
        self.run = Run(folder)

    def write(self, name: str, content: Content) -> None: ...
    def log(self, entry: Mapping[str, Any]) -> None: ...
    def rewind(self, size: int) -> None: ...
    def close(self) -> None: ...

    def logged(self) -> int:
        return 0


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Unbuffered files may take only a part at a time."""
    while data:
        data = data[file.write(data) :]
