"""The loop: step, log, evaluate, keep the best, and never lose a run.

All chance comes from generators that belong to the run and are saved with it, so a run that was
stopped, or killed, goes on from its checkpoint to the same weights, bit for bit.
"""

from __future__ import annotations

import io
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch

from bough import card, measure, optimiser, rows, sampling, surgery, weighting
from bough import encoder as encoders
from bough.batches import Deck, Examples, Ints
from bough.display import Display, Moment, Silent
from bough.evaluate import Predictions, predict, score, selected
from bough.files import DiskFullError
from bough.mistakes import Mistake
from bough.model import MultiTaskModel, load
from bough.network import Network, plan_of
from bough.recipe import Phase, Recipe, Training
from bough.rows import Rows
from bough.runs import Run, Writer
from bough.states import States
from bough.step import NotFiniteError, Step, Stepper
from bough.tasks import SPLITS, Task

SPARSE = 0.5  # passes over the smallest set, below which keeping states is not worth its pass


class Stopped(Exception):
    """Training was asked to stop; the checkpoint is written."""


class Failed(Exception):
    """Training cannot go on, and it is not the user's mistake alone; the last state is kept."""


@dataclass(frozen=True)
class Data:
    """Every task's rows, checked, and the tasks with their classes known."""

    tasks: dict[str, Task]
    rows: dict[str, dict[str, Rows]]  # task -> split -> rows

    @classmethod
    def gather(cls, recipe: Recipe, splits: Sequence[Any] | None = None) -> Data:
        tasks, found = {}, {}
        for name, task in recipe.tasks.items():
            tasks[name], own = rows.load(
                name, task, root=recipe.root, policy=recipe.rows, splits=splits
            )
            found[name] = {str(split): part for split, part in own.items()}
        return cls(tasks, found)

    def notes(self) -> list[str]:
        """What was skipped or assumed, one sentence each."""
        every = [part for own in self.rows.values() for part in own.values()]
        return [part.report() for part in every if part.skipped] + [
            note for part in every for note in part.notes
        ]

    def digests(self) -> dict[str, dict[str, dict[str, Any]]]:
        """What the rows are known by: task -> split -> sizes and sha256."""
        return {
            name: {
                split: {
                    "rows": len(part),
                    "sha256": rows.digest(part),
                    "skipped": len(part.skipped),
                }
                for split, part in own.items()
            }
            for name, own in self.rows.items()
        }

    def examples(self, split: str, model: MultiTaskModel) -> dict[str, Examples]:
        return {
            name: Examples.of(self.tasks[name], own[split], model.tokenizer, model.longest)
            for name, own in self.rows.items()
            if split in own
        }


@dataclass
class Place:
    """How far a run has come."""

    phase: int = 0
    epoch: int = 0  # of this phase
    step: int = 0  # of this epoch
    done: int = 0  # steps of this phase
    total: int = 0  # steps of the run
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    since_best: int = 0  # evaluations without a better score
    step_seconds: list[float] = field(default_factory=list)  # the last thousand
    memory: int = 0  # the most bytes that any of the run's processes had


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    out: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    display: Display | None = None,
) -> Run:
    """Train what the recipe says and return its run directory."""
    told = _anchored(Recipe.read(recipe, overrides))
    writer = Writer.start(Path(out).expanduser() if out is not None else new_folder(recipe))
    with _closing(writer, display or Silent()) as shown:
        Trainer(told, writer, shown, None).run()
    return writer.run


def resume(folder: str | os.PathLike[str], display: Display | None = None) -> Run:
    """Go on with a run that was stopped or killed, as if nothing had happened."""
    run = Run.open(folder)
    if run.finished:
        raise Mistake(f"{run.folder}: is finished; there is nothing to resume")
    writer = Writer.resume(run.folder)
    with _closing(writer, display or Silent()) as shown:
        state = None
        if run.checkpoint.is_file():
            state = torch.load(run.checkpoint, map_location="cpu", weights_only=True)
        Trainer(Recipe.read(run.recipe_file), writer, shown, state).run()
    return run


def judge(folder: str | os.PathLike[str], split: str) -> dict[str, Any]:
    """Scores of a run's best model on one of its recipe's splits, with intervals."""
    run = Run.open(folder)
    if split not in SPLITS:
        raise Mistake(f"--split {split!r}: expected {', '.join(SPLITS)}")
    data = Data.gather(Recipe.read(run.recipe_file), [split])
    model = load(run.folder)
    examples = {n: e for n, e in data.examples(split, model).items() if e.targets is not None}
    if not examples:
        raise Mistake(f"{run.folder}: the {split} rows have no labels to judge by")
    return score(model.tasks, examples, predict(model.network, examples), intervals=True)


def new_folder(recipe: object) -> Path:
    """runs/<recipe's name>, numbered where it is taken."""
    stem = Path(recipe).stem if isinstance(recipe, str | os.PathLike) else "run"
    number = 1
    while True:
        folder = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not folder.exists():
            return folder
        number += 1


@contextmanager
def _closing(writer: Writer, display: Display) -> Iterator[Display]:
    """Whatever happens, the display is put away and the run directory let go of."""
    try:
        yield display
    except DiskFullError as error:
        raise Failed(
            f"{error}. Make room, then go on with: bough train --resume {writer.run.folder}"
        ) from None
    finally:
        display.close()
        writer.close()


def _anchored(recipe: Recipe) -> Recipe:
    """With an encoder's folder by its full path, so that a run can be resumed from anywhere."""
    folder = Path(recipe.encoder).expanduser()
    if recipe.encoder == encoders.MINILM or not folder.is_dir():
        return recipe
    return recipe.model_copy(update={"encoder": str(folder.resolve())})


def load_model(recipe: Recipe, data: Data) -> tuple[MultiTaskModel, list[str]]:
    """The untrained model of a recipe, and what there is to say about its encoder."""
    encoder = encoders.load(recipe.encoder)
    plan = plan_of(recipe.plan, data.tasks, encoder.shape)
    network = Network.pretrained(plan, data.tasks, encoder, recipe.training.seed)
    longest = min(recipe.max_length, encoder.shape.longest)
    notes = []
    if plan.pooled and not encoder.weights("pooler"):
        notes.append(f"encoder {encoder.source!r} has no pooler; a fresh one is trained with it")
    if encoder.unused:
        names = ", ".join(encoder.unused[:3]) + (", ..." if len(encoder.unused) > 3 else "")
        notes.append(f"{len(encoder.unused)} tensors of the encoder are not used: {names}")
    # A model may be shown to others, who need not know the folders of this machine.
    called = Path(encoder.source)
    name = called.name if called.is_absolute() else encoder.source
    facts = {"encoder": name, "saw_quora": encoder.saw_quora}
    return MultiTaskModel(network, encoder.tokenizer, longest, facts), notes


def device_of(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise Mistake(f"device is {name!r}, but torch sees no CUDA device here; set device: cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise Mistake("device is 'mps', but torch sees none here; set device: cpu")
    return torch.device(name)


class Trainer:
    """One run from where it stands to its end."""

    def __init__(
        self, recipe: Recipe, writer: Writer, display: Display, state: dict[str, Any] | None
    ):
        self.recipe = recipe
        self.writer = writer
        self.display = display
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        self.device = device_of(recipe.device)
        self.data = Data.gather(recipe)
        self.tasks = self.data.tasks
        self.model, notes = load_model(recipe, self.data)
        self.network = self.model.network.to(self.device)
        for note in [*self.data.notes(), *notes]:
            display.say(note)
        self.train = self.data.examples("train", self.model)
        self.dev = self.data.examples("dev", self.model)
        for name, own in self.train.items():
            if own.cut:
                display.say(
                    f"task {name!r}: {own.cut:,} sequences cut to {self.model.longest} tokens"
                )
        self.sample = {
            name: _sample(own, recipe.training.evaluate_rows) for name, own in self.dev.items()
        }
        self.phases = recipe.training.phases or (None,)
        self._check()
        self.place = Place()
        self.state = state
        self.saved = time.monotonic()
        self.stop: int | None = None

    # The course of a run.

    def run(self) -> None:
        if self.state is None:
            self.writer.rewind(0)
            self._begin()
        else:
            self._same_rows()
            self.place = Place(**self.state["place"])
            self.writer.rewind(self.state["log"])
        with self._listening():
            for number in range(self.place.phase, len(self.phases)):
                self.place.phase = number
                self._phase(self.phases[number])
                self.place = replace(
                    self.place, phase=number + 1, epoch=0, step=0, done=0, since_best=0
                )
        self._finish()

    def _check(self) -> None:
        """Whatever can be wrong with the settings is found before anything is written."""
        surgery.parse(self.recipe.training.combine)
        weighting.check(self.recipe.training.weighting)
        for phase in self.phases:
            self._course(phase)

    def _course(self, phase: Phase | None) -> tuple[Training, sampling.Sampler, int]:
        """A phase's settings, whose turn it is in it, and its steps."""
        training = self.recipe.training if phase is None else phase.over(self.recipe.training)
        sizes = {name: len(own) for name, own in self.train.items()}
        lengths = {name: float(own.lengths.mean()) for name, own in self.train.items()}
        return training, *_course(training, sizes, lengths)

    def _begin(self) -> None:
        self.writer.write("recipe.yaml", self.recipe.dump())
        self.writer.write("plan.txt", f"{self.model.plan}\n")
        told = {**measure.environment(), "data": self.data.digests()}
        self.writer.write_json("environment.json", told)
        self.writer.run.model.mkdir(exist_ok=True)
        self.model.save_words(self.writer.run.model)

    def _same_rows(self) -> None:
        """Rows that changed since the run began would make it go on as neither run."""
        before = self.writer.run.environment["data"]
        for name, own in self.data.digests().items():
            for split, known in own.items():
                if before.get(name, {}).get(split, known)["sha256"] != known["sha256"]:
                    raise Mistake(
                        f"{self.writer.run.folder}: the {split} rows of task {name!r} "
                        f"({self.data.rows[name][split].source}) have changed since the run "
                        "began; put them back to resume it, or train anew"
                    )

    def _phase(self, phase: Phase | None) -> None:
        self.training, self.sampler, self.steps = self._course(phase)
        training = self.training
        self.network.hold(phase is not None and phase.frozen)
        self._forecast()
        given = self.recipe.task_weights()
        weights = {name: given[name] * self.sampler.factors[name] for name in self.tasks}
        seed = [training.seed, self.place.phase]
        if self.state is not None:  # before anything is computed with the weights
            self.network.load_state_dict(self.state["stepper"]["network"])
        learned_from, self.judged = self._kept(self.train), self._kept(self.sample)
        self.stepper = Stepper(
            self.network, learned_from, training, weights, [*seed, 0], self.recipe.precision
        )
        self.turns = np.random.Generator(np.random.PCG64([*seed, 1]))
        self.decks = {
            name: Deck(own.lengths, training.batch, training.length_window, [*seed, 2, i])
            for i, (name, own) in enumerate(self.train.items())
        }
        self.losses: dict[str, list[float]] = {name: [] for name in self.tasks}
        if self.state is not None:
            self._restore(self.state)
            self.state = None
        while self.place.done < self.steps:
            if self.place.step == self.sampler.steps(self.place.epoch):
                self.place.epoch, self.place.step = self.place.epoch + 1, 0
                self.stepper.weighting.close_epoch()
            self._step()
            if self._evaluation_due():
                if self._evaluate():
                    self.place.done = self.steps
                self._checkpoint()
            elif self.stop is not None or time.monotonic() - self.saved > training.save_every:
                self._checkpoint()
            if self.stop is not None:
                raise Stopped(
                    f"stopped after step {self.place.total}; "
                    f"go on with: bough train --resume {self.writer.run.folder}"
                )

    def _kept(self, examples: dict[str, Examples]) -> dict[str, Examples]:
        """With the states of what is frozen, where that saves work."""
        states = States(self.network)
        seen = self.steps * self.training.batch * self.training.accumulate
        if not (states.worth and self.training.keep_states) or seen < SPARSE * min(
            map(len, examples.values())
        ):
            return examples
        self.display.say("the trunk's fixed part is computed once for each text")
        return {name: states.of(name, own) for name, own in examples.items()}

    def _step(self) -> None:
        began = time.perf_counter()
        place, training = self.place, self.training
        counts = self.sampler.draw(place.epoch, place.step, self.turns)
        parts = _parts(
            {name: self.decks[name].deal(count) for name, count in counts.items()},
            training.accumulate,
        )
        lr = training.lr * optimiser.factor(
            place.done, self.steps, training.warmup, training.schedule
        )
        every = training.cosines_every
        try:
            step = self.stepper.step(parts, lr, bool(every) and (place.total + 1) % every == 0)
        except NotFiniteError as error:
            run = self.writer.run
            kept = f"; the last state is kept in {run.folder}" if run.checkpoint.is_file() else ""
            raise Failed(
                f"{error} is not a finite number at step {place.total + 1}{kept}. "
                f"Lower training.lr ({training.lr:g}) and train anew"
            ) from None
        seconds = time.perf_counter() - began
        place.step, place.done, place.total = place.step + 1, place.done + 1, place.total + 1
        place.tokens, place.seconds = place.tokens + step.tokens, place.seconds + seconds
        place.step_seconds.append(seconds)
        self._forecast()
        for name, value in step.losses.items():
            self.losses[name].append(value)
        self._tell(lr, step, seconds)

    def _forecast(self) -> None:
        """By the clock, the number of steps is what the pace so far makes of the minutes."""
        place, minutes = self.place, self.training.minutes
        if minutes is None or not place.done:
            return
        share = place.seconds / (60 * minutes)
        self.steps = place.done if share >= 1 else max(place.done + 1, round(place.done / share))

    def _tell(self, lr: float, step: Step, seconds: float) -> None:
        place = self.place
        means = {n: float(np.mean(v)) if v else math.nan for n, v in self.losses.items()}
        passes = {name: deck.passes for name, deck in self.decks.items()}
        epoch = place.epoch + place.step / self.sampler.steps(place.epoch)
        phase = f" of phase {place.phase + 1}" if len(self.phases) > 1 else ""
        self.display.step(
            Moment(place.done, self.steps, epoch, phase, means, passes, lr, step.tokens / seconds)
        )
        if (
            place.total % self.training.log_every
            and place.done < self.steps
            and step.cosines is None
        ):
            return
        entry = {
            "step": place.total,
            "phase": place.phase,
            "epoch": round(epoch, 4),
            "loss": {n: v for n, v in means.items() if not math.isnan(v)},
            "examples": {name: deck.seen for name, deck in self.decks.items()},
            "passes": {n: round(v, 4) for n, v in passes.items()},
            "lr": lr,
            "gradient_norm": step.norm,
            "tokens": place.tokens,
            "seconds": round(place.seconds, 3),
        }
        if step.cosines is not None:
            entry["cosines"] = step.cosines
        self.writer.log(entry)
        self.display.log(entry)
        self.losses = {name: [] for name in self.tasks}

    # Judging.

    def _evaluation_due(self) -> bool:
        every = self.training.evaluate_every
        if self.place.done >= self.steps:
            return True
        if every == "epoch":
            return self.place.step == self.sampler.steps(self.place.epoch)
        return self.place.done % int(every) == 0

    def _evaluate(self) -> bool:
        """Judge, keep the model if it is the best; whether to stop early."""
        average = self.stepper.average
        with nullcontext() if average is None else average.applied():
            scores = score(self.tasks, self.judged, predict(self.network, self.judged))
            select = self.recipe.training.select
            value = None if select == "last" else selected(scores, self.tasks, select)
            better = value is None or self.place.best is None or value > self.place.best
            if better:
                self.place.best, self.place.since_best = value, 0
                self.writer.write("model/model.safetensors", self.model.weights())
            else:
                self.place.since_best += 1
        self.writer.log({"step": self.place.total, "dev": scores, "best": better})
        self.display.scored(self.place.total, scores, better)
        patience = self.training.patience
        return patience is not None and self.place.since_best >= patience

    def _finish(self) -> None:
        """The best model once more on every split that has rows; then the run is done."""
        best = load(self.writer.run.folder)
        best.network.to(self.device)
        everything: dict[str, Any] = {}
        for split in ("dev", "test"):
            examples = self.dev if split == "dev" else self.data.examples("test", self.model)
            if not examples:
                continue
            found = predict(best.network, examples)
            labelled = {n: own for n, own in examples.items() if own.targets is not None}
            if labelled:
                everything[split] = score(self.tasks, labelled, found, intervals=True)
            for name, own in found.items():
                self._write_predictions(name, split, own)
        length = float(np.mean(np.concatenate([own.lengths for own in self.train.values()])))
        self.network.hold(False)
        place = self.place
        told = measure.of_run(
            self.network, place.seconds, place.step_seconds, place.tokens, length, place.memory
        )
        self.writer.write_json("cost.json", told)
        best.facts |= {
            "scores": everything,
            "cost": told,
            "data": card.data_of(self.tasks, self.data.rows),
            "examples": card.examples_of({n: own["dev"] for n, own in self.data.rows.items()}),
            "training": self._settings(),
        }
        best.save_words(self.writer.run.model)
        self.writer.write_json("scores.json", everything)

    def _settings(self) -> dict[str, Any]:
        """How it was trained, in a few words for the card."""
        training = self.recipe.training
        keys = ("batch", "lr", "sampling", "combine", "weighting", "seed")
        told = {"steps": self.place.total, **{key: getattr(training, key) for key in keys}}
        return told | {"processor": self.writer.run.environment["processor"]}

    def _write_predictions(self, name: str, split: str, found: Predictions) -> None:
        task, own = self.tasks[name], self.data.rows[name][split]
        labels = list(task.labels or ())
        header = ["id", *(["label"] if own.labels is not None else []), "predicted"]
        header += [f"p({label})" for label in labels]
        lines = []
        for i, row in enumerate(own.ids):
            value = found.values[i]
            said = labels[value] if labels else f"{value:.6f}"
            truth = (
                []
                if own.labels is None
                else [labels[int(own.labels[i])] if labels else own.labels[i]]
            )
            shares = (
                [] if found.probabilities is None else [f"{p:.6f}" for p in found.probabilities[i]]
            )
            lines.append([row, *truth, said, *shares])
        self.writer.write_csv(f"predictions/{name}-{split}.csv", header, lines)

    # Never losing it.

    def _checkpoint(self) -> None:
        self.place.memory = max(self.place.memory, measure.peak_memory())
        state = {
            "place": vars(self.place) | {"step_seconds": self.place.step_seconds[-1000:]},
            "stepper": self.stepper.state(),
            "turns": self.turns.bit_generator.state,
            "decks": {name: deck.state() for name, deck in self.decks.items()},
            "losses": self.losses,
            "log": self.writer.logged(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.writer.write("checkpoint/state.pt", buffer.getbuffer())  # without a second copy
        self.saved = time.monotonic()

    def _restore(self, state: dict[str, Any]) -> None:
        self.stepper.restore(state["stepper"])
        self.turns.bit_generator.state = state["turns"]
        for name, deck in self.decks.items():
            deck.restore(state["decks"][name])
        self.losses = state["losses"]

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM end the run after the step at hand; a second Ctrl-C at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: FrameType | None) -> None:
            if self.stop is not None:
                raise KeyboardInterrupt
            self.stop = number
            with suppress(RuntimeError):  # it came while a line was being written
                self.display.say("stopping after this step; the run can be resumed")

        old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _course(
    training: Training, sizes: Mapping[str, int], lengths: Mapping[str, float]
) -> tuple[sampling.Sampler, int]:
    """The sampler, and how many steps it is asked for; `lengths` are the examples' mean tokens.
    Accumulation makes for larger and fewer steps: an epoch sees as many examples as without it."""
    batch = training.batch * training.accumulate

    def sampler(epochs: int) -> sampling.Sampler:
        return sampling.parse(training.sampling, sizes, batch, epochs, training.steps_per_epoch)

    def epochs_of(steps: int) -> int:
        return max(1, math.ceil(steps / sampler(1).steps(0)))

    if training.tokens is not None:
        # Whose turn it is may depend on the number of epochs, which depends on whose turn it is.
        epochs = epochs_of(round(training.tokens / _tokens(sampler(1), 1, lengths)))
        steps = max(1, round(training.tokens / _tokens(sampler(epochs), epochs, lengths)))
        return sampler(epochs_of(steps)), steps
    if training.steps is None:
        chosen = sampler(training.epochs)
        return chosen, sum(chosen.steps(epoch) for epoch in range(training.epochs))
    return sampler(epochs_of(training.steps)), training.steps


def _tokens(sampler: sampling.Sampler, epochs: int, lengths: Mapping[str, float]) -> float:
    """Mean tokens of a step, from the draws of a few epochs spread over the run."""
    rng = np.random.default_rng(0)
    found = [
        sum(lengths[name] * count for name, count in sampler.draw(epoch, step, rng).items())
        for epoch in {round(e) for e in np.linspace(0, epochs - 1, min(epochs, 5))}
        for step in range(sampler.steps(epoch))
    ]
    return float(np.mean(found))


def _parts(dealt: Mapping[str, Ints], number: int) -> list[dict[str, Ints]]:
    """A step's examples in parts that are worked on one after the other."""
    cut = {name: np.array_split(which, number) for name, which in dealt.items()}
    every = ({name: own[i] for name, own in cut.items() if len(own[i])} for i in range(number))
    return [part for part in every if part]


def _sample(examples: Examples, most: int | None) -> Examples:
    """The same few rows at every evaluation, where judging all would take longer than training."""
    if most is None or len(examples) <= most:
        return examples
    kept = np.sort(np.random.default_rng(0).permutation(len(examples))[:most])
    targets = None if examples.targets is None else examples.targets[torch.from_numpy(kept)]
    return replace(examples, seats=examples.seats[kept], targets=targets)


class _Room(ModuleType):
    """`bough.train` names this room as well as the public function: calling the room trains."""

    def __call__(self, *args: Any, **options: Any) -> Run:
        return train(*args, **options)


sys.modules[__name__].__class__ = _Room
