"""A run of several tasks: what it begins with, how it is judged, and what it leaves.

All chance comes from generators that belong to the run and are saved with it, so a run that was
stopped, or killed, goes on from its checkpoint to the same weights, bit for bit.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from bough import stop_signals
from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.disk_cache import disk_limit
from bough.distributed import ALONE, Processes
from bough.errors import UserError
from bough.inference.device import device_of
from bough.inference.folder import save_metadata
from bough.inference.load import load_torch
from bough.inference.torch_model import untrained_model
from bough.model import pretrained
from bough.model.losses import ignorant_loss
from bough.model.network import Network, plan_of
from bough.native.precision import agreed, narrow
from bough.plan import pair_reading
from bough.plan.plan import Plan
from bough.recipe.recipe import Recipe
from bough.runs import cost, memory_rows, model_facts, predictions, unchanged
from bough.runs.console import Display, preparing
from bough.runs.run_dir import Writer
from bough.scoring import selection
from bough.scoring.evaluate import calibrate, learned_nothing, predict, score
from bough.scoring.metrics import Predictions, aggregates
from bough.training.head_fit import few_rows, fit_heads
from bough.training.loop import Loop
from bough.training.phase import Phase, PhaseSchedule, Progress, left_behind
from bough.training.states.frozen_states import kept
from bough.training.teachers.taught import answer_files, digests, taught

EXPLODED = 3  # times what knowing nothing costs: no loss that learns comes there
SPARSE = 0.5  # passes over all the rows, below which keeping states is not worth its pass


class Trainer:
    """One run from where it stands to its end."""

    verb: ClassVar[str] = "train"

    def __init__(
        self,
        recipe: Recipe,
        writer: Writer,
        display: Display,
        state: dict[str, Any] | None,
        processes: Processes = ALONE,
    ):
        self.recipe = recipe
        self.processes = processes
        self.writer = writer
        self.display = display
        self.state = state  # of the checkpoint to go on from, until that is done
        self.device = device_of(processes.device(recipe.device))
        _check_whole_batches(recipe, processes)
        encoder = pretrained.load(recipe.encoder)
        # Reading the data may take long: what is wrong with the plan is said before.
        with recipe.blamed("plan"):
            plan = plan_of(recipe.plan, encoder.pooling.resolve(recipe.tasks), encoder.shape)
        self.data = self._gathered(encoder)
        pair_notes = self._decide_pairs(encoder, plan)
        self.model, notes = untrained_model(recipe, self.data, encoder)
        self.tasks = self.model.tasks
        self.encoder_digests = pretrained.digests(recipe.encoder)
        self.network = self.model.network.to(self.device)
        self.precision = agreed(recipe.precision, self.device, processes, display.say)
        self.network.narrow = narrow(self.precision)
        processes.hand_out(self.network.state_dict().values())
        for note in [*self.data.notes(), *self.data.noticed(), *notes, *pair_notes]:
            display.say(note)
        self.train = self._examples("train")
        self.dev = self._examples("dev")
        for name, examples in self.train.items():
            if examples.out_of_reach:
                display.say(
                    f"task {name!r}: {examples.out_of_reach:,} of its train spans end inside a "
                    "word, or behind what is read of the text, and cannot be answered just so"
                )
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
        self.learned = taught(
            self.learned, self.data, self.model.tokenizer, self.model.longest, recipe.root,
            str(self.device), processes, display.say, self.model.tagger,
            writer.run.folder,
        )  # fmt: skip
        phases = recipe.training.phases or (None,)
        self.schedules = [PhaseSchedule.of(recipe.training, p, self.learned) for p in phases]
        self.counted = {name: self.tasks[name] for name in recipe.counted()}
        self.loop = Loop(writer, display, processes, len(self.schedules), self.verb)
        self.notes: set[str] = set()

    def _gathered(self, encoder: pretrained.Encoder) -> Data:
        """The rows, with their tokens; parts of speech are found later, and tokens with them."""
        tagged = self.recipe.parts_of_speech or encoder.shape.tagger
        with self.processes.first_ahead(), preparing(self.display) as watch:
            return Data.gather(
                self.recipe,
                tokenizer=None if tagged else encoder.tokenizer,
                longest=min(self.recipe.max_length, encoder.shape.longest),
                watch=watch,
            )

    def _decide_pairs(self, encoder: pretrained.Encoder, plan: Plan) -> list[str]:
        """How pairs are read, where the recipe leaves it open; what there is to say about it."""
        rows = {name: len(splits["train"]) for name, splits in self.data.rows.items()}
        # What a head reads of another must be read as it reads.
        compares = encoder.pooling.compares and not any(map(plan.reading, plan.tasks))
        before = self.recipe.tasks
        tasks, notes = pair_reading.resolved(before, rows, compares)
        self.recipe = self.recipe.model_copy(update={"tasks": tasks})
        if any(tasks[name].twin != before[name].twin for name in tasks):
            self.data = self._gathered(encoder)  # they have other tokens then, few of them
        known = {
            n: t.model_copy(update={"pair": tasks[n].pair}) for n, t in self.data.tasks.items()
        }
        self.data = replace(self.data, tasks=known)
        return notes

    def _examples(self, split: str) -> dict[str, Examples]:
        return self.data.examples(
            split, self.model.tokenizer, self.model.longest, self.model.tagger
        )

    # From the first phase to the last.

    def run(self) -> None:
        progress = Progress()
        if self.state is None:
            self.writer.rewind(0)
            if self.processes.first:
                self._begin()
        else:
            unchanged.check(
                self.writer.run, self.data, self.recipe.encoder, self.encoder_digests,
                self.display.say, here=cost.environment(), processes=self.processes.count,
                teachers=digests(self.learned),
            )  # fmt: skip
            progress = Progress(**self.state["progress"])
            self.writer.rewind(self.state["log"])
        self.display.say(f"the run is written to {self.writer.run.folder}")
        for sentence in left_behind(self.network.plan, self.schedules):
            self.display.say(sentence)
        if self._heads_fitted and self.state is None:
            self._fit_heads()
        with stop_signals.heard(self.loop.heard):
            for schedule in self.schedules[progress.phase :]:
                self._train(schedule, progress)
                # A phase and its loader hold each other: its optimiser's state, twice the weights,
                # would stay until the collector came by.
                gc.collect()
                progress = progress.next_phase()
        self._finish(progress)
        if self.recipe.training.select != "last" and progress.best_step is not None:
            fitted = "" if progress.best_step else ": the encoder as it was, with fitted heads"
            self.display.say(f"kept: step {progress.best_step}, of {progress.total}{fitted}")
        self.processes.wait()  # until all of it is written

    def _begin(self) -> None:
        # With the classes, pooling, length and precision that were found: they are the run's,
        # whatever becomes of the files, the rules and the machine.
        found: dict[str, Any] = {"heads": "fitted" if self._heads_fitted else "fresh"}
        if self.schedules[0].by_rows and not self.recipe.training.phases:
            found["epochs"] = self.schedules[0].epochs
        training = self.recipe.training.model_copy(update=found)
        recipe = self.recipe.model_copy(update={"training": training, "precision": self.precision})
        resolved, files = memory_rows.stored(recipe, self.tasks)
        for name, content in files.items():
            self.writer.write(name, content)
        for name, answers in answer_files(self.learned, self.data).items():
            self.writer.write(name, answers)
        self.writer.write("recipe.yaml", resolved.dump())
        self.writer.write("plan.txt", f"{self.model.plan}\n")
        where = {**cost.environment(), "data": self.data.digests(), **self.encoder_digests}
        where |= {"device": self.device.type, "processes": self.processes.count}
        where["teachers"] = digests(self.learned)
        self.writer.write_json("environment.json", where)
        self.writer.run.model.mkdir(exist_ok=True)
        save_metadata(self.model, self.writer.run.model)

    @property
    def _heads_fitted(self) -> bool:
        how = self.recipe.training.heads
        return how == "fitted" or (how == "auto" and not self.recipe.training.phases)

    def _fit_heads(self) -> None:
        self.network.freeze_trunk()  # for the time being: nothing is said of kept states
        some = {name: few_rows(self.train[name]) for name in self.learned}
        rows = sum(len(part) for part in some.values())
        self.display.say(f"first the heads are fitted to the untouched encoder on {rows:,} rows")
        if self.recipe.training.keep_states:
            some = kept(self.network, some, self.processes, lambda text: None)
        fit_heads(self.network, some)
        self.processes.hand_out(self.network.state_dict().values())

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
        examples = {name: self.learned[name] for name in schedule.tasks}
        if schedule.examples >= SPARSE * sum(map(len, examples.values())):
            examples = self._with_states(self.network, examples)
        # Judging all of it at every evaluation might take longer than training.
        few = {name: dev.sample(schedule.training.evaluate_rows) for name, dev in self.dev.items()}
        for sentence in selection.said(schedule.training.select, self.counted, few):
            self._say_once(sentence)
        judged = self._with_states(self.network, few)
        phase = Phase(
            schedule, progress, self.network, examples, self.recipe.task_weights(), self.processes,
            sum(later.steps for later in self.schedules[progress.phase + 1 :]),
        )  # fmt: skip
        if self.state is not None:
            phase.restore(self.state)
            self.state = None
        elif self._heads_fitted and progress.total == 0:
            self._evaluate(phase, judged)  # the best so far may stay the best
        self.loop.run(
            phase,
            lambda: self._evaluate(phase, judged),
            lambda losses: self._watch(losses, phase.training.lr),
        )

    def _with_states(self, network: Network, examples: dict[str, Examples]) -> dict[str, Examples]:
        keep = self.recipe.training.keep_states
        return kept(network, examples, self.processes, self._say_once) if keep else examples

    def _say_once(self, text: str) -> None:
        if text not in self.notes:
            self.notes.add(text)
            self.display.say(text)

    def _watch(self, losses: Mapping[str, float], lr: float) -> None:
        """Say once when a task's loss is far above what knowing nothing costs."""
        for name, now in losses.items():
            task = self.tasks[name]
            if task.class_weights is None and now > EXPLODED * ignorant_loss(task):
                self._say_once(
                    f"the loss of task {name!r} is far above what knowing nothing costs: the "
                    f"learning rate is too high; stop, and lower training.lr ({lr:g})"
                )

    # Judging.

    def _evaluate(self, phase: Phase, judged: dict[str, Examples]) -> bool:
        """Judge, keep the model if it is the best; whether to stop early."""
        progress, average = phase.progress, phase.stepper.average
        with nullcontext() if average is None else average.applied():
            answers = predict(self.network, judged, processes=self.processes)
            found: dict[str, Any] = {}
            if self.processes.first:
                scores = self._scores(judged, answers)
                value = selection.value(
                    self.recipe.training.select, self.counted, scores, judged, answers
                )
                found = {"dev": scores, "selected": value}
            found = self.processes.agree_on(found)  # what is best, and when to stop
            scores, value = found["dev"], found["selected"]
            better = value is None or progress.best is None or value > progress.best
            if better:
                progress.best, progress.best_step, progress.since_best = value, progress.total, 0
                self.writer.write("model/model.safetensors", self.model.write_weights)
            elif {*phase.schedule.tasks} & {*self.counted}:  # else no score here can grow
                progress.since_best += 1
        self.writer.log({"step": progress.total, **found, "best": better})
        self.display.scored(progress.total, scores, better and value is not None)
        patience = phase.training.patience
        return patience is not None and progress.since_best >= patience

    def _scores(
        self,
        examples: Mapping[str, Examples],
        answers: Mapping[str, Predictions],
        intervals: bool = False,
    ) -> dict[str, Any]:
        """Of all tasks; the means are over those that count."""
        scores = score(self.tasks, examples, answers, intervals)
        counted = {name: each for name, each in scores["tasks"].items() if name in self.counted}
        return scores | aggregates(self.tasks, counted)

    def _finish(self, progress: Progress) -> None:
        """The best model once more on every split that has rows; then the run is done."""
        best = load_torch(self.writer.run) if self.processes.first else self.model
        best.network.narrow = self.network.narrow
        best.network.to(self.device)
        self.processes.hand_out(best.network.state_dict().values())
        if all(schedule.frozen for schedule in self.schedules):
            # What no phase let learn has the states that were kept for judging on the way.
            best.network.freeze_trunk()
        else:  # whatever the last phase left: all processes judge in the same way
            best.network.unfreeze()
        scores: dict[str, Any] = {}
        for split in ("dev", "test"):
            examples = self.dev if split == "dev" else self._examples("test")
            if not examples:
                continue
            cached = self._with_states(best.network, examples)
            predicted = predict(best.network, cached, processes=self.processes)
            if not self.processes.first:
                continue
            if split == "dev":
                best.facts["calibration"] = calibrate(best.tasks, examples, predicted)
            labelled = {n: source for n, source in examples.items() if source.targets is not None}
            if labelled:
                scores[split] = self._scores(labelled, predicted, intervals=True)
                if split == "dev":
                    for sentence in learned_nothing(scores[split]):
                        self._say_once(sentence)
            for name, answers in predicted.items():
                rows = self.data.rows[name][split]
                table = predictions.table(self.tasks[name], rows, answers)
                self.writer.write_csv(f"predictions/{name}-{split}.csv", *table)
        most = self.processes.largest(torch.tensor(max(progress.memory, cost.peak_memory())))
        if not self.processes.first:
            return
        lengths = {name: float(source.lengths.mean()) for name, source in self.train.items()}
        self.network.unfreeze()
        spent = cost.of_run(
            self.network,
            progress.seconds,
            progress.step_seconds,
            progress.tokens,
            lengths,
            int(most),
        )
        if self.processes.count > 1:
            spent["processes"] = self.processes.count
            spent["exchanged_bytes_per_step"] = progress.exchanged / progress.total
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
        said: dict[str, Any] = {"steps": steps, **{key: getattr(training, key) for key in keys}}
        teachers = {  # by their own names, without the folders of this machine
            name: " and ".join(Path(teacher.source).name for teacher in task.teacher)
            for name, task in self.recipe.tasks.items()
            if task.teacher
        }
        if teachers:
            taught = "; ".join(f"{name} by {who}" for name, who in teachers.items())
            said["taught"] = f"{taught} (weight {training.distil.weight:g})"
        return said | {"processor": self.writer.run.environment["processor"]}


def _check_whole_batches(recipe: Recipe, processes: Processes) -> None:
    """A loss that is of a whole batch cannot be learned from in parts."""
    for name, task in recipe.tasks.items():
        if task.loss == "pearson" and processes.count > 1:
            raise UserError(
                f"task {name!r}: its loss, pearson, is of a whole batch, of which each of "
                f"{processes.count} processes has a part; train it in one, or set another loss"
            )
