"""A pretraining from outside, and its course: read texts, guess masked words, leave an encoder.

It is a run like any other: the same loop, log, checkpoint and lock; it can be stopped, killed and
gone on with, bit for bit. What it leaves is `encoder/`, the best by the texts held out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional as F

from bough import stop_signals
from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.data.packing import by_tokens, collate
from bough.distributed import ALONE, Processes
from bough.errors import UserError
from bough.inference.device import device_of
from bough.model import pretrained
from bough.native.precision import agreed, narrow
from bough.pretraining import encoder_folder, texts
from bough.pretraining.masked_lm import MaskedLM
from bough.pretraining.masking import TEXTS, MaskedBatches, Masker
from bough.recipe.pretraining import Pretraining
from bough.recipe.recipe import Recipe
from bough.runs import cost, memory_rows, unchanged
from bough.runs.console import Display, Silent, for_terminal
from bough.runs.run_dir import Run, Writer
from bough.training.loop import Loop
from bough.training.phase import Phase, PhaseSchedule, Progress
from bough.training.train import go_on, new_folder, start

ENDING = "-pretrained"  # of a run's usual name


def pretrain(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    out: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    display: Display | None = None,
    *,
    progress: bool = False,
) -> Run:
    """Train a recipe's encoder further on texts, by words that are masked and to be guessed.

    Args:
        recipe: A YAML file, a mapping of the same keys, or a `Recipe`; its `pretraining` says how.
        out: The run's directory; else `runs/RECIPE'S-NAME-pretrained`.
        overrides: Settings `a.b=c`, as those of `bough pretrain --set`.
        display: What is told of every step; nothing by default.
        progress: Show how it goes, as `bough pretrain` does; in a notebook below the cell.

    Returns:
        The finished run; name its folder as the `encoder` of any recipe.

    Example:
        >>> run = bough.pretrain("recipe.yaml", "runs/read", ["pretraining.steps=2"])
        >>> (run.folder / "encoder" / "model.safetensors").is_file()
        True
    """
    resolved = Recipe.read(recipe, overrides).anchored()
    settings = resolved.pretraining or Pretraining()
    if settings.start is not None:
        where = os.path.realpath(os.path.expanduser(settings.start))
        settings = settings.model_copy(update={"start": where})
    resolved = resolved.model_copy(update={"pretraining": settings})
    chosen = Path(out).expanduser() if out is not None else new_folder(recipe, ENDING)
    watched = display or (for_terminal() if progress else Silent())
    return start(Pretrainer, resolved, chosen, watched)


def resume(
    folder: str | os.PathLike[str], display: Display | None = None, threads: int | None = None
) -> Run:
    """Go on with a pretraining that was stopped or killed."""
    return go_on(Pretrainer, Run.open(folder), display or Silent(), threads)


class Pretrainer:
    """One pretraining from where it stands to its end."""

    verb: ClassVar[str] = "pretrain"

    def __init__(
        self,
        recipe: Recipe,
        writer: Writer,
        display: Display,
        state: dict[str, Any] | None,
        processes: Processes = ALONE,
    ):
        assert recipe.pretraining is not None
        self.recipe = recipe
        self.settings = settings = recipe.pretraining
        self.writer = writer
        self.display = display
        self.state = state
        self.processes = processes
        self.device = device_of(processes.device(recipe.device))
        self.encoder, head = encoder_folder.starting_point(recipe.encoder, settings.start)
        self.masker = Masker(self.encoder.tokenizer, settings.mask, settings.whole_words)
        self.training = settings.over(recipe.training)
        self.data = Data.gather(recipe, ["train"])
        longest = min(recipe.max_length, self.encoder.shape.longest)
        read = texts.gather(settings, self.data.rows, recipe.root)
        self.texts = texts.prepare(read, settings.held_out, self.encoder.tokenizer, longest)
        self.model = MaskedLM.of(self.encoder, head, self.training.seed).to(self.device)
        self.precision = agreed(recipe.precision, self.device, processes, display.say)
        self.model.narrow = narrow(self.precision)
        processes.hand_out(self.model.state_dict().values())
        self.learned = {TEXTS: self.texts.learned}
        self.schedule = PhaseSchedule.of(self.training, None, self.learned)
        self.loop = Loop(writer, display, processes, 1, self.verb)
        self.before: dict[str, Any] = {}
        for note in self._notes(longest, head is None):
            display.say(note)

    def _notes(self, longest: int, fresh: bool) -> list[str]:
        learned, held_out = self.texts.learned, self.texts.held_out
        cut = learned.cut + held_out.cut
        return [
            *self.data.notes(),
            f"{len(learned):,} different texts to learn from, {len(held_out):,} held out",
            *([f"{cut:,} texts cut to {longest} tokens"] if cut else []),
            "the head that guesses words is "
            + ("a fresh one: the encoder came without" if fresh else "the encoder's own"),
        ]

    def run(self) -> None:
        progress = Progress()
        encoder, digests = self.recipe.encoder, pretrained.digests(self.recipe.encoder)
        if self.state is None:
            self.writer.rewind(0)
            if self.processes.first:
                self._begin(digests)
        else:
            unchanged.check(
                self.writer.run, self.data, encoder, digests, self.display.say,
                here=cost.environment(), processes=self.processes.count, teachers={},
            )  # fmt: skip
            self._check_texts()
            progress = Progress(**self.state["progress"])
            self.writer.rewind(self.state["log"])
        self.display.say(f"the run is written to {self.writer.run.folder}")
        phase = Phase(
            self.schedule, progress, self.model, self.learned, {TEXTS: 1.0}, self.processes,
        )  # fmt: skip
        phase.batches = MaskedBatches(
            phase.loader, self.masker, [self.training.seed, 3], lambda: progress.total,
            self.processes,
        )  # fmt: skip
        if self.state is not None:
            phase.restore(self.state)
            self.state = None  # a copy of all weights
        else:
            self._judge(phase)
        with stop_signals.heard(self.loop.heard):
            self.loop.run(phase, lambda: self._judge(phase))
        self._finish(progress)
        self.processes.wait()

    def _begin(self, digests: Mapping[str, str]) -> None:
        own, tasks = self.encoder.pooling, self.data.tasks
        # As a run's recipe has it: with what was found about the tasks.
        found = tasks if own.name is None else own.resolve(tasks)
        recipe = self.recipe.model_copy(update={"precision": self.precision})
        resolved, files = memory_rows.stored(recipe, found)
        for name, content in files.items():
            self.writer.write(name, content)
        self.writer.write("recipe.yaml", resolved.dump())
        where = {**cost.environment(), "data": self.data.digests(), **digests}
        where |= {"texts": self.texts.digest(), "processes": self.processes.count}
        self.writer.write_json("environment.json", where)
        encoder_folder.write_files(self.recipe.encoder, self.writer)

    def _check_texts(self) -> None:
        run = self.writer.run
        if run.environment.get("texts") != self.texts.digest():
            raise UserError(
                f"{run.folder}: the texts have changed since the run began; put them back to "
                "resume it, or pretrain anew"
            )

    def _judge(self, phase: Phase) -> bool:
        """Judge the texts held out, and keep the encoder if it is the best; never stop early."""
        progress = phase.progress
        held_out = self.texts.held_out
        scores = judged(self.model, self.masker, held_out) if self.processes.first else {}
        scores = self.processes.agree_on(scores)
        value = -scores["tasks"][TEXTS]["loss"]
        better = progress.best is None or value > progress.best
        if better:
            progress.best = value
            weights = encoder_folder.weights(self.model, self.encoder)
            self.writer.write("encoder/model.safetensors", weights)
        self.writer.log({"step": progress.total, "dev": scores, "best": better})
        self.display.scored(progress.total, scores, better)
        return False

    def _finish(self, progress: Progress) -> None:
        """The scores of before and of the encoder that was kept; then the run is done."""
        if not self.processes.first:
            return
        entries = [entry for entry in self.writer.run.metrics() if "dev" in entry]
        best = [entry for entry in entries if entry["best"]][-1]
        spent = {
            "training_seconds": progress.seconds,
            "tokens": progress.tokens,
            "peak_memory": max(progress.memory, cost.peak_memory()),
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }
        self.writer.write_json("cost.json", spent)
        self.writer.write_json("scores.json", {"before": entries[0]["dev"], "after": best["dev"]})


@torch.inference_mode()
def judged(model: MaskedLM, masker: Masker, examples: Examples) -> dict[str, Any]:
    """Loss, perplexity and accuracy on texts, always under the same masks."""
    rng = np.random.default_rng(0)
    device = model.words.weight.device
    total, right, count = 0.0, 0, 0
    for numbers in by_tokens(examples.lengths):
        batch = masker.batch(collate({TEXTS: examples}, {TEXTS: numbers}), rng)
        logits = model(batch.pack.to(device), batch.index)[TEXTS].float()
        targets = batch.targets[TEXTS].to(device)
        total += float(F.cross_entropy(logits, targets, reduction="sum"))
        right += int((logits.argmax(1) == targets).sum())
        count += len(targets)
    loss = total / max(count, 1)
    score = {
        "metric": "perplexity",
        "perplexity": math.exp(min(loss, 700.0)),  # a number, even where nothing was learned
        "loss": loss,
        "accuracy": right / max(count, 1),
        "rows": count,
    }
    return {"tasks": {TEXTS: score}}
