"""The loop: step, log, evaluate, keep the best, and never lose a run.

All chance comes from generators that belong to the run and are saved with it, so a run that was
stopped, or killed, goes on from its checkpoint to the same weights, bit for bit.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import torch

from bough import signals
from bough.data.batches import Examples, ExampleSampler, parts
from bough.data.dataset import Data
from bough.errors import UserError
from bough.inference.device import device_of
from bough.inference.folder import save_metadata
from bough.inference.load import load_torch
from bough.model.network import Network
from bough.recipe.recipe import Recipe
from bough.runs import cost, facts, predictions
from bough.runs.console import Display, Moment
from bough.runs.run_dir import Writer
from bough.scoring.metrics import selected
from bough.training import setup
from bough.training.cached_states import States, room
from bough.training.evaluate import predict, score
from bough.training.phase import PhaseSchedule, Progress
from bough.training.step import NotFiniteError, Stepper, StepResult

FORM = 1  # of a checkpoint; one of another form is refused
SPARSE = 0.5  # passes over all the rows, below which keeping states is not worth its pass


class Stopped(Exception):
    """Training was asked to stop; the checkpoint is written."""


class Failed(Exception):
    """Training cannot go on, and it is not the user's mistake alone; the last state is kept."""


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
        self.model, notes = setup.build(recipe, self.data)
        self.network = self.model.network.to(self.device)
        for note in [*self.data.notes(), *notes]:
            display.say(note)
        self.train = self._examples("train")
        self.dev = self._examples("dev")
        for name, own in self.train.items():
            if own.cut:
                display.say(
                    f"task {name!r}: {own.cut:,} sequences cut to {self.model.longest} tokens"
                )
        # Judging all of it at every evaluation might take longer than training.
        few = recipe.training.evaluate_rows
        self.sample = {name: own.sample(few) for name, own in self.dev.items()}
        self.told: set[str] = set()
        # Whatever can be wrong with the settings is found before anything is written.
        room()
        weights = recipe.task_weights()
        self.learned = {name: own for name, own in self.train.items() if weights[name]}
        for name in self.train.keys() - self.learned.keys():
            display.say(f"task {name!r} has weight 0: it is judged, and nothing learns from it")
        phases = recipe.training.phases or (None,)
        self.courses = [PhaseSchedule.of(recipe.training, phase, self.learned) for phase in phases]
        self.progress = Progress()
        self.state = state
        self.saved = time.monotonic()
        self.stop = False

    def _examples(self, split: str) -> dict[str, Examples]:
        return self.data.examples(split, self.model.tokenizer, self.model.longest)

    # The course of a run.

    def run(self) -> None:
        if self.state is None:
            self.writer.rewind(0)
            self._begin()
        else:
            self._same_rows()
            self.progress = Progress(**self.state["progress"])
            self.writer.rewind(self.state["log"])
        self.display.say(f"the run is written to {self.writer.run.folder}")
        with signals.heard(self._heard):
            for course in self.courses[self.progress.phase :]:
                self._follow(course)
                self.progress = self.progress.next_phase()
        self._finish()

    def _begin(self) -> None:
        # With the classes that were found: they are the model's, whatever becomes of the files.
        told = self.recipe.model_copy(update={"tasks": self.tasks})
        self.writer.write("recipe.yaml", told.dump())
        self.writer.write("plan.txt", f"{self.model.plan}\n")
        where = {**cost.environment(), "data": self.data.digests()}
        self.writer.write_json("environment.json", where)
        self.writer.run.model.mkdir(exist_ok=True)
        save_metadata(self.model, self.writer.run.model)

    def _same_rows(self) -> None:
        """Rows that changed since the run began would make it go on as neither run."""
        before = self.writer.run.environment["data"]
        for name, own in self.data.digests().items():
            for split, known in own.items():
                if before.get(name, {}).get(split, known)["sha256"] != known["sha256"]:
                    raise UserError(
                        f"{self.writer.run.folder}: the {split} rows of task {name!r} "
                        f"({self.data.rows[name][split].source}) have changed since the run "
                        "began; put them back to resume it, or train anew"
                    )

    def _follow(self, course: PhaseSchedule) -> None:
        """One phase, from where it stands to its end."""
        self.course, training = course, course.training
        self.network.hold(course.frozen)
        course.forecast(self.progress)
        given = self.recipe.task_weights()
        weights = {name: given[name] * course.sampler.factors[name] for name in self.learned}
        seed = [training.seed, self.progress.phase]
        if self.progress.done == 0:
            self.display.say(course.sampler.describe())
        if self.state is not None:  # before anything is computed with the weights
            self.network.load_state_dict(self.state["stepper"]["network"])
        sparse = course.examples < SPARSE * sum(map(len, self.learned.values()))
        learned_from = self.learned if sparse else self._kept(self.network, self.learned)
        self.judged = self._kept(self.network, self.sample)
        self.stepper = Stepper(
            self.network, learned_from, training, weights, [*seed, 0], self.recipe.precision
        )
        self.turns = np.random.Generator(np.random.PCG64([*seed, 1]))
        self.decks = {
            name: ExampleSampler(own.lengths, training.batch, training.length_window, [*seed, 2, i])
            for i, (name, own) in enumerate(self.learned.items())
        }
        self.losses: dict[str, list[float]] = {name: [] for name in self.learned}
        if self.state is not None:
            self._restore(self.state)
            self.state = None
        while self.progress.done < course.steps and not self.progress.over:
            if course.epoch_ends(self.progress):
                self.progress.epoch, self.progress.step = self.progress.epoch + 1, 0
                self.stepper.weighting.close_epoch()
            self._step()
            if course.evaluation_due(self.progress):
                self.progress.over = self._evaluate()
                self._checkpoint()
            elif self.stop or time.monotonic() - self.saved > training.save_every:
                self._checkpoint()
            if self.stop:
                raise Stopped(
                    f"stopped after step {self.progress.total}; "
                    f"go on with: bough train --resume {self.writer.run.folder}"
                )

    def _kept(self, network: Network, examples: dict[str, Examples]) -> dict[str, Examples]:
        """With the states of what is frozen, where that saves work and there is room."""
        states = States(network)
        if not (states.worth and self.course.training.keep_states):
            return examples
        if states.fit(examples):
            self._say_once("the trunk's fixed part is computed once for each text")
            kept = states.of_all(examples)
            if all(own.first for own in kept.values()):
                return kept
        self._say_once(
            "some states of the trunk's fixed part have no room in the cache (BOUGH_CACHE, at most "
            "BOUGH_CACHE_GB) and are computed again whenever they are needed"
        )
        return examples

    def _say_once(self, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            self.display.say(text)

    def _step(self) -> None:
        began = time.perf_counter()
        progress, course = self.progress, self.course
        counts = course.sampler.draw(progress.epoch, progress.step, self.turns)
        dealt = {name: self.decks[name].deal(count) for name, count in counts.items()}
        lr = course.lr(progress)
        try:
            step = self.stepper.step(
                parts(dealt, course.training.accumulate), lr, course.cosines_due(progress)
            )
        except NotFiniteError as error:
            run = self.writer.run
            kept = f"; the last state is kept in {run.folder}" if run.checkpoint.is_file() else ""
            raise Failed(
                f"{error} is not a finite number at step {progress.total + 1}{kept}. "
                f"Lower training.lr ({course.training.lr:g}) and train anew"
            ) from None
        seconds = time.perf_counter() - began
        progress.count(step.tokens, seconds)
        course.forecast(progress)
        for name, value in step.losses.items():
            self.losses[name].append(value)
        self._tell(lr, step, seconds)

    def _tell(self, lr: float, step: StepResult, seconds: float) -> None:
        progress, course = self.progress, self.course
        means = {n: float(np.mean(v)) if v else math.nan for n, v in self.losses.items()}
        passes = {name: deck.passes for name, deck in self.decks.items()}
        epoch, pace = course.epochs(progress), step.tokens / seconds
        phase = f" of phase {progress.phase + 1}" if len(self.courses) > 1 else ""
        self.display.step(
            Moment(progress.done, course.steps, epoch, phase, means, passes, lr, pace)
        )
        if not course.logging_due(progress) and step.cosines is None:
            return
        entry = {
            "step": progress.total,
            "phase": progress.phase,
            "epoch": round(epoch, 4),
            "loss": {n: v for n, v in means.items() if not math.isnan(v)},
            "examples": {name: deck.seen for name, deck in self.decks.items()},
            "passes": {n: round(v, 4) for n, v in passes.items()},
            "lr": lr,
            "gradient_norm": step.norm,
            "weights": step.weights,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
        }
        if step.coefficients:
            entry["coefficients"] = step.coefficients
        if step.cosines is not None:
            entry["cosines"] = step.cosines
        self.writer.log(entry)
        self.display.log(entry)
        self.losses = {name: [] for name in self.learned}

    # Judging.

    def _evaluate(self) -> bool:
        """Judge, keep the model if it is the best; whether to stop early."""
        average = self.stepper.average
        with nullcontext() if average is None else average.applied():
            scores = score(self.tasks, self.judged, predict(self.network, self.judged))
            select = self.recipe.training.select
            value = None if select == "last" else selected(scores, self.tasks, select)
            better = value is None or self.progress.best is None or value > self.progress.best
            if better:
                self.progress.best, self.progress.since_best = value, 0
                self.writer.write("model/model.safetensors", self.model.weights())
            else:
                self.progress.since_best += 1
        self.writer.log({"step": self.progress.total, "dev": scores, "best": better})
        self.display.scored(self.progress.total, scores, better)
        patience = self.course.training.patience
        return patience is not None and self.progress.since_best >= patience

    def _finish(self) -> None:
        """The best model once more on every split that has rows; then the run is done."""
        best = load_torch(self.writer.run)
        best.network.to(self.device)
        # What no phase let learn has the states that were kept for judging on the way.
        best.network.hold(all(course.frozen for course in self.courses))
        everything: dict[str, Any] = {}
        for split in ("dev", "test"):
            examples = self.dev if split == "dev" else self._examples("test")
            if not examples:
                continue
            found = predict(best.network, self._kept(best.network, examples))
            labelled = {n: own for n, own in examples.items() if own.targets is not None}
            if labelled:
                everything[split] = score(self.tasks, labelled, found, intervals=True)
            for name, own in found.items():
                told = predictions.table(self.tasks[name], self.data.rows[name][split], own)
                self.writer.write_csv(f"predictions/{name}-{split}.csv", *told)
        lengths = {name: float(own.lengths.mean()) for name, own in self.train.items()}
        self.network.hold(False)
        progress = self.progress
        spent = cost.of_run(
            self.network,
            progress.seconds,
            progress.step_seconds,
            progress.tokens,
            lengths,
            progress.memory,
        )
        self.writer.write_json("cost.json", spent)
        best.facts |= {
            "scores": everything,
            "cost": spent,
            "data": facts.data_of(self.tasks, self.data.rows),
            "examples": facts.examples_of({n: own["dev"] for n, own in self.data.rows.items()}),
            "training": self._settings(),
        }
        save_metadata(best, self.writer.run.model)
        self.writer.write_json("scores.json", everything)

    def _settings(self) -> dict[str, Any]:
        """How it was trained, in a few words for the card."""
        training = self.recipe.training
        keys = ("batch", "lr", "sampling", "combine", "weighting", "seed")
        told = {"steps": self.progress.total, **{key: getattr(training, key) for key in keys}}
        return told | {"processor": self.writer.run.environment["processor"]}

    # Never losing it.

    def _checkpoint(self) -> None:
        self.progress.memory = max(self.progress.memory, cost.peak_memory())
        state = {
            "form": FORM,
            "progress": vars(self.progress) | {"step_seconds": list(self.progress.step_seconds)},
            "stepper": self.stepper.state(),
            "turns": self.turns.bit_generator.state,
            "decks": {name: deck.state() for name, deck in self.decks.items()},
            "losses": self.losses,
            "log": self.writer.logged(),
        }
        self.writer.write("checkpoint/state.pt", lambda file: torch.save(state, file))
        self.saved = time.monotonic()

    def _restore(self, state: dict[str, Any]) -> None:
        self.stepper.restore(state["stepper"])
        self.turns.bit_generator.state = state["turns"]
        for name, deck in self.decks.items():
            deck.restore(state["decks"][name])
        self.losses = state["losses"]

    def _heard(self) -> None:
        """Ctrl-C or SIGTERM: the run ends after the step at hand; at the second time at once."""
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
        with suppress(RuntimeError):  # it came while a line was being written
            self.display.say("stopping after this step; the run can be resumed")
