"""The loop: step, log, evaluate, keep the best, and never lose a run.

All chance comes from generators that belong to the run and are saved with it, so a run that was
stopped, or killed, goes on from its checkpoint to the same weights, bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bough import stop_signals
from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.errors import UserError
from bough.inference.device import device_of
from bough.inference.folder import save_metadata
from bough.inference.load import load_torch
from bough.inference.torch_model import MultiTaskModel
from bough.model import pretrained
from bough.model.network import Network, plan_of
from bough.recipe.recipe import Recipe
from bough.runs import cost, model_facts, predictions
from bough.runs.console import Display, Moment
from bough.runs.run_dir import Run, Writer
from bough.scoring.evaluate import predict, score
from bough.scoring.metrics import selected
from bough.training.disk_cache import disk_limit
from bough.training.frozen_states import States
from bough.training.head_fit import MOST_ROWS, fit_heads
from bough.training.phase import Phase, PhaseSchedule, Progress
from bough.training.step import NotFiniteError, StepResult

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
        self.state = state  # of the checkpoint to go on from, until that is done
        self.device = device_of(recipe.device)
        self.data = Data.gather(recipe)
        self.model, notes = untrained_model(recipe, self.data)
        self.tasks = self.model.tasks
        self.encoder_digests = pretrained.digests(recipe.encoder)
        self.network = self.model.network.to(self.device)
        for note in [*self.data.notes(), *notes]:
            display.say(note)
        self.train = self._examples("train")
        self.dev = self._examples("dev")
        for name, examples in self.train.items():
            if examples.cut:
                display.say(
                    f"task {name!r}: {examples.cut:,} sequences cut to {self.model.longest} tokens"
                )
        # Whatever can be wrong with the settings is found before anything is written.
        disk_limit()
        weights = recipe.task_weights()
        self.learned = {name: examples for name, examples in self.train.items() if weights[name]}
        for name in self.train.keys() - self.learned.keys():
            display.say(f"task {name!r} has weight 0: it is judged, and nothing learns from it")
        phases = recipe.training.phases or (None,)
        self.schedules = [PhaseSchedule.of(recipe.training, p, self.learned) for p in phases]
        self.saved = time.monotonic()
        self.stop = False
        self.saving = False
        self.notes: set[str] = set()

    def _examples(self, split: str) -> dict[str, Examples]:
        return self.data.examples(split, self.model.tokenizer, self.model.longest)

    # From the first phase to the last.

    def run(self) -> None:
        progress = Progress()
        if self.state is None:
            self.writer.rewind(0)
            self._begin()
        else:
            self._check_unchanged()
            progress = Progress(**self.state["progress"])
            self.writer.rewind(self.state["log"])
        self.display.say(f"the run is written to {self.writer.run.folder}")
        if self._heads_fitted and self.state is None:
            self._fit_heads()
        with stop_signals.heard(self._heard):
            for schedule in self.schedules[progress.phase :]:
                self._train(schedule, progress)
                progress = progress.next_phase()
        self._finish(progress)

    def _begin(self) -> None:
        # With the classes, the pooling and the length that were found: they are the run's, whatever
        # becomes of the files and the rules.
        length = {"epochs": self.recipe.training.epochs or self.schedules[0].epochs}
        training = self.recipe.training.model_copy(update=length)
        resolved = self.recipe.model_copy(update={"tasks": self.tasks, "training": training})
        self.writer.write("recipe.yaml", resolved.dump())
        self.writer.write("plan.txt", f"{self.model.plan}\n")
        where = {**cost.environment(), "data": self.data.digests(), **self.encoder_digests}
        self.writer.write_json("environment.json", where)
        self.writer.run.model.mkdir(exist_ok=True)
        save_metadata(self.model, self.writer.run.model)

    def _check_unchanged(self) -> None:
        """Rows or tokens that changed since the run began would make it go on as neither run."""
        run = self.writer.run
        for name, split, source in changed_rows(run, self.data):
            raise UserError(
                f"{run.folder}: the {split} rows of task {name!r} ({source}) have changed since "
                "the run began; put them back to resume it, or train anew"
            )
        before = run.environment
        for part, digest in self.encoder_digests.items():
            if before.get(part, digest) == digest:  # runs of before have none
                continue
            if part == "tokenizer":
                raise UserError(
                    f"{run.folder}: the tokenizer of encoder {self.recipe.encoder!r} is another "
                    "than when the run began; put it back to resume it, or train anew"
                )
            self.display.say(
                f"the weights of encoder {self.recipe.encoder!r} are others than when the run "
                "began; it goes on with its own, from the checkpoint"
            )
        threads = torch.get_num_threads()
        if before.get("threads", threads) != threads:
            self.display.say(
                f"the run began with {before['threads']} threads and goes on with {threads}: "
                "results may differ in the last bits"
            )

    @property
    def _heads_fitted(self) -> bool:
        how = self.recipe.training.heads
        return how == "fitted" or (how == "auto" and not self.recipe.training.phases)

    def _fit_heads(self) -> None:
        self.display.say("the heads begin fitted to what the untouched encoder says of the rows")
        self.network.freeze_trunk()
        some = {name: source.sample(MOST_ROWS) for name, source in self.learned.items()}
        fit_heads(self.network, self._with_states(self.network, some))

    def _train(self, schedule: PhaseSchedule, progress: Progress) -> None:
        """One phase, from where it stands to its end."""
        if schedule.frozen:
            self.network.freeze_trunk()
        else:
            self.network.unfreeze()
        if progress.done == 0:
            self.display.say(schedule.describe())
        if self.state is not None:  # before anything is computed with the weights
            try:
                self.network.load_state_dict(self.state["stepper"]["network"])
            except RuntimeError:  # torch's words are a list of tensors
                raise UserError(
                    f"{self.writer.run.checkpoint}: does not fit encoder {self.recipe.encoder!r} "
                    "as it is now; put back the one that the run began with, or train anew"
                ) from None
        sparse = schedule.examples < SPARSE * sum(map(len, self.learned.values()))
        examples = self.learned if sparse else self._with_states(self.network, self.learned)
        # Judging all of it at every evaluation might take longer than training.
        few = {name: dev.sample(schedule.training.evaluate_rows) for name, dev in self.dev.items()}
        judged = self._with_states(self.network, few)
        weights = self.recipe.task_weights()
        phase = Phase(schedule, progress, self.network, examples, weights, self.recipe.precision)
        if self.state is not None:
            phase.restore(self.state)
            self.state = None
        elif self._heads_fitted and progress.total == 0:
            self._evaluate(phase, judged)  # the best so far may stay the best
        while not phase.over:
            self._log(phase, self._step(phase))
            if phase.evaluation_due:
                progress.over = self._evaluate(phase, judged)
                self._checkpoint(phase)
            elif self.stop or time.monotonic() - self.saved > schedule.training.save_every:
                self._checkpoint(phase)
            if self.stop:
                raise Stopped(
                    f"stopped after step {progress.total}; "
                    f"go on with: bough train --resume {self.writer.run.folder}"
                )

    def _with_states(self, network: Network, examples: dict[str, Examples]) -> dict[str, Examples]:
        """With the states of what is frozen, where that saves work and there is room."""
        states = States(network)
        if not (states.worth and self.recipe.training.keep_states):
            return examples
        if states.fit(examples):
            self._say_once("the trunk's fixed part is computed once for each text")
            cached = states.of_all(examples)
            if states.cache.damaged:
                self._say_once("kept states were damaged, and are computed anew")
            if all(source.first for source in cached.values()):
                return cached
        self._say_once(
            "some states of the trunk's fixed part have no room in the cache (BOUGH_CACHE, at most "
            "BOUGH_CACHE_GB) and are computed again whenever they are needed"
        )
        return examples

    def _say_once(self, text: str) -> None:
        if text not in self.notes:
            self.notes.add(text)
            self.display.say(text)

    def _step(self, phase: Phase) -> StepResult:
        try:
            return phase.step()
        except NotFiniteError as error:
            run = self.writer.run
            kept = f"; the last state is kept in {run.folder}" if run.checkpoint.is_file() else ""
            raise Failed(
                f"{error} is not a finite number at step {phase.progress.total + 1}{kept}. "
                f"Lower training.lr ({phase.training.lr:g}) and train anew"
            ) from None

    def _log(self, phase: Phase, result: StepResult) -> None:
        """Show the step; write a line where one is due, with the mean losses since the last."""
        progress, epochs = phase.progress, phase.epochs
        means = {n: float(np.mean(v)) if v else math.nan for n, v in phase.losses.items()}
        passes = {name: sampler.passes for name, sampler in phase.samplers.items()}
        pace = result.tokens / progress.step_seconds[-1]
        which = f" of phase {progress.phase + 1}" if len(self.schedules) > 1 else ""
        self.display.step(
            Moment(progress.done, phase.steps, epochs, which, means, passes, result.lr, pace)
        )
        if not phase.logging_due and result.cosines is None:
            return
        entry = {
            "step": progress.total,
            "phase": progress.phase,
            "epoch": round(epochs, 4),
            "loss": {n: v for n, v in means.items() if not math.isnan(v)},
            "examples": {name: sampler.seen for name, sampler in phase.samplers.items()},
            "passes": {n: round(v, 4) for n, v in passes.items()},
            "lr": result.lr,
            "gradient_norm": result.norm,
            "weights": result.weights,
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
        }
        if result.coefficients:
            entry["coefficients"] = result.coefficients
        if result.cosines is not None:
            entry["cosines"] = result.cosines
        self.writer.log(entry)
        self.display.log(entry)
        phase.losses = {name: [] for name in phase.losses}

    # Judging.

    def _evaluate(self, phase: Phase, judged: dict[str, Examples]) -> bool:
        """Judge, keep the model if it is the best; whether to stop early."""
        progress, average = phase.progress, phase.stepper.average
        with nullcontext() if average is None else average.applied():
            scores = score(self.tasks, judged, predict(self.network, judged))
            select = self.recipe.training.select
            value = None if select == "last" else selected(scores, self.tasks, select)
            better = value is None or progress.best is None or value > progress.best
            if better:
                progress.best, progress.since_best = value, 0
                self.writer.write("model/model.safetensors", self.model.weights())
            else:
                progress.since_best += 1
        self.writer.log({"step": progress.total, "dev": scores, "best": better})
        self.display.scored(progress.total, scores, better)
        patience = phase.training.patience
        return patience is not None and progress.since_best >= patience

    def _finish(self, progress: Progress) -> None:
        """The best model once more on every split that has rows; then the run is done."""
        best = load_torch(self.writer.run)
        best.network.to(self.device)
        if all(schedule.frozen for schedule in self.schedules):
            # What no phase let learn has the states that were kept for judging on the way.
            best.network.freeze_trunk()
        scores: dict[str, Any] = {}
        for split in ("dev", "test"):
            examples = self.dev if split == "dev" else self._examples("test")
            if not examples:
                continue
            predicted = predict(best.network, self._with_states(best.network, examples))
            labelled = {n: source for n, source in examples.items() if source.targets is not None}
            if labelled:
                scores[split] = score(self.tasks, labelled, predicted, intervals=True)
            for name, answers in predicted.items():
                rows = self.data.rows[name][split]
                table = predictions.table(self.tasks[name], rows, answers)
                self.writer.write_csv(f"predictions/{name}-{split}.csv", *table)
        lengths = {name: float(source.lengths.mean()) for name, source in self.train.items()}
        self.network.unfreeze()
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
            "scores": scores,
            "cost": spent,
            "data": model_facts.data_of(self.tasks, self.data.rows),
            "examples": model_facts.examples_of(
                {n: rows["dev"] for n, rows in self.data.rows.items()}
            ),
            "training": self._settings(progress.total),
        }
        save_metadata(best, self.writer.run.model)
        self.writer.write_json("scores.json", scores)

    def _settings(self, steps: int) -> dict[str, Any]:
        """How it was trained, in a few words for the card."""
        training = self.recipe.training
        keys = ("batch", "lr", "sampling", "combine", "weighting", "seed")
        processor = self.writer.run.environment["processor"]
        return {
            "steps": steps, **{key: getattr(training, key) for key in keys}, "processor": processor
        }  # fmt: skip

    # Never losing it.

    def _checkpoint(self, phase: Phase) -> None:
        phase.progress.memory = max(phase.progress.memory, cost.peak_memory())
        state = {"form": FORM, **phase.state(), "log": self.writer.logged()}
        self.saving = True
        try:
            self.writer.write("checkpoint/state.pt", lambda file: torch.save(state, file))
        finally:
            self.saving = False
        self.saved = time.monotonic()

    def _heard(self) -> None:
        """Ctrl-C or SIGTERM: the run ends after the step at hand; at the second time at once.

        But not within a checkpoint, which ends it anyway: torch's writer cannot be left halfway.
        """
        if self.stop and self.saving:
            return
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True
        with suppress(RuntimeError):  # it came while a line was being written
            self.display.say("stopping after this step; the run can be resumed")


def changed_rows(run: Run, data: Data) -> Iterator[tuple[str, str, str]]:
    """The tasks and splits whose rows are not those of the run, and where the rows come from."""
    before = run.environment.get("data", {})
    for name, splits in data.digests().items():
        for split, known in splits.items():
            if before.get(name, {}).get(split, known)["sha256"] != known["sha256"]:
                yield name, split, data.rows[name][split].source


def untrained_model(recipe: Recipe, data: Data) -> tuple[MultiTaskModel, list[str]]:
    """The untrained model of a recipe, and what there is to say about its encoder."""
    encoder = pretrained.load(recipe.encoder)
    tasks = encoder.pooling.resolve(data.tasks)
    plan = plan_of(recipe.plan, tasks, encoder.shape)
    network = Network.pretrained(plan, tasks, encoder, recipe.training.seed)
    longest = min(recipe.max_length, encoder.shape.longest)
    notes = [] if tasks == data.tasks else [f"pooling: {encoder.pooling}"]
    if plan.pooled and not encoder.weights("pooler"):
        notes.append(f"encoder {encoder.source!r} has no pooler; a fresh one is trained with it")
    if encoder.unused:
        names = ", ".join(encoder.unused[:3]) + (", ..." if len(encoder.unused) > 3 else "")
        notes.append(f"of the encoder, not used: {names} ({len(encoder.unused)} in all)")
    # A model may be shown to others, who need not know the folders of this machine.
    called = Path(encoder.source)
    name = called.name if called.is_absolute() else encoder.source
    facts = {"encoder": name, "saw_quora": encoder.saw_quora}
    if encoder.pooling.name is not None:
        facts["pooling"] = {**vars(encoder.pooling)}
    return MultiTaskModel(network, encoder.tokenizer, longest, facts), notes
