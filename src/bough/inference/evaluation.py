"""A model judged on labelled rows: a run's own, a file's, or rows in memory; whatever computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bough.data import checked_rows
from bough.data.checked_rows import Rows, WaysOut
from bough.data.dataset import Data
from bough.data.examples import Examples
from bough.data.tokens import text_of
from bough.errors import UserError
from bough.formatting import number
from bough.inference.input_files import Choice
from bough.inference.judging.evaluation import Evaluation
from bough.inference.judging.judged_tasks import GIVEN, judged_tasks
from bough.inference.load import load
from bough.inference.model import WINDOW, Form, Model
from bough.inference.precision.int8_scores import changes, keep
from bough.inference.torch_model import MultiTaskModel
from bough.recipe.quora_caveat import caveats
from bough.recipe.sources import as_source
from bough.recipe.tasks import SPLITS, Task
from bough.runs.console import progress
from bough.runs.run_dir import Run
from bough.runs.unchanged import changed_rows
from bough.scoring import entities
from bough.scoring.classes import confusion, per_class, per_label
from bough.scoring.evaluate import learned_nothing, predict, read_out, score
from bough.scoring.metrics import Predictions

Say = Callable[[str], None]
# Asked from Python and from the command line alike.
WAYS_OUT = WaysOut("leave such rows out (--skip, in Python skip=True)", "the model")


def evaluate(
    source: str | os.PathLike[str] | Run | Model,
    rows: Any = None,
    *,
    split: str = "dev",
    tasks: Sequence[str] | str = (),
    text: Sequence[str] | str = (),
    label: str = "",
    skip: bool = False,
    precision: str = "auto",
    say: Say = lambda sentence: None,
) -> Evaluation:
    """Judge a model on labelled rows.

    Args:
        source: A run, its directory, a model folder, an ONNX folder, a hub id, or a loaded model.
        rows: A file, or rows in memory as a recipe takes them; left out, those of the run's recipe.
        split: Without `rows`: dev, test or train.
        tasks: Only these tasks; else those that the recipe has this file for, or every one whose
            text and label columns are there.
        text: The column with the text, or two for a pair, if not by their names in the recipe.
        label: The column with the label, likewise.
        skip: Leave out rows that cannot be read.
        precision: As for `bough.load`. `int8` on all tasks' dev rows of a run also says what it
            costs them, and keeps that with the model: only then does it answer so.
        say: Told of rows that were left out, or that are not those of the run.

    Raises:
        UserError: There is no such model, the rows do not fit it, or their labels may be those of
            several tasks.

    Example:
        >>> rows = [{"text": "A fine film.", "label": "positive"}]
        >>> bough.evaluate("runs/first", rows).scores["tasks"]["sentiment"]["rows"]
        1
    """
    named, columns = (
        (words,) if isinstance(words, str) else tuple(words) for words in (tasks, text)
    )
    choice = Choice(named, columns, skip, label)
    if rows is None:
        return _of_run(source, split, choice, precision, say)
    model = source if isinstance(source, Model) else load(source, precision=precision)
    choice.check(model)
    place = "" if isinstance(source, Model) else f"{getattr(source, 'folder', source)}: "
    called = rows if isinstance(rows, str | os.PathLike) else GIVEN
    found = _judged(model, _gathered(model, rows, choice), say)
    return replace(found, title=f"{place}{called}")


def _gathered(model: Model, rows: Any, choice: Choice) -> dict[str, Rows]:
    """The rows that were given, as each task that they judge reads them."""
    given, root = as_source(rows, GIVEN), Path.cwd()
    policy: checked_rows.Policy = "skip" if choice.skip else "error"
    able = judged_tasks(model, given, choice, root)
    gaps = len({task.label_columns for task in able.values()}) > 1
    return {
        name: checked_rows.read(
            name, task, given, root=root, policy=policy, labels="needed", gaps=gaps, ways=WAYS_OUT
        )
        for name, task in able.items()
    }


def _of_run(
    source: str | os.PathLike[str] | Run | Model,
    split: str,
    choice: Choice,
    precision: str,
    say: Say,
) -> Evaluation:
    if isinstance(source, Model):
        raise UserError("a model has no rows of its own; give the rows to judge it by")
    if split not in SPLITS:
        raise UserError(f"split {split!r}: expected {', '.join(SPLITS)}")
    run = source if isinstance(source, Run) else _run(source)
    weigh = precision == "int8" and split == "dev" and not choice.tasks
    model = load(run, precision="fp32" if weigh else precision)
    choice.check(model)
    recipe = run.recipe()
    asked = {n: t for n, t in recipe.tasks.items() if n in (choice.tasks or recipe.tasks)}
    if not choice.tasks:  # those that have such rows, if not named
        asked = {n: t for n, t in asked.items() if getattr(t, split) is not None} or asked
    data = Data.gather(recipe, [split], only=asked)
    changed = list(changed_rows(run, data))
    for name, _, where in changed:
        say(
            f"the {split} rows of task {name!r} ({where}) are not those that the run was judged "
            "on: its scores are of other rows than these"
        )
    labelled = {
        name: splits[split]
        for name, splits in data.rows.items()
        if splits[split].labels is not None
    }
    if not labelled:
        raise UserError(f"{run.folder}: the {split} rows have no labels to judge by")
    found = _weighed(run, model, labelled, say) if weigh else _judged(model, labelled, say)
    if not weigh and not changed:
        _say_otherwise(run.scores.get(split) or {}, found.scores, say)
    return replace(found, title=f"{run.folder}: {split}")


def _say_otherwise(then: Mapping[str, Any], now: Mapping[str, Any], say: Say) -> None:
    """Where the run's own scores of these rows are others, say why."""
    apart = [
        f"{name} {number(scores[metric])}, here {number(now['tasks'][name][metric])}"
        for name, scores in then.get("tasks", {}).items()
        if name in now["tasks"] and (metric := scores["metric"])
        and number(scores[metric]) != number(now["tasks"][name][metric])
    ]  # fmt: skip
    if apart:
        say(
            f"training judged these rows with {', '.join(apart)}: answers are rounded otherwise "
            "than in training, so that rows on the edge may change sides"
        )


def _weighed(run: Run, model: Model, rows: Mapping[str, Rows], say: Say) -> Evaluation:
    """Judged in fp32 and in int8; what that changes is said, and kept with the model."""
    assert isinstance(model, MultiTaskModel)
    if missing := [name for name in model.tasks if name not in rows]:
        raise UserError(
            f"{run.folder}: task {missing[0]!r} has no labelled dev rows to hold int8 against; "
            "give it some, or answer in another precision"
        )
    before = _judged(model, rows, say)
    model.answer_in("int8")
    after = evaluated(model, rows)
    found = changes(model, before.scores["tasks"], after.scores["tasks"])
    for change in found:
        say(str(change))
    keep(run, model, found)
    say(f"{run.folder}: may answer in int8 now: bough serve {run.folder} --precision int8")
    return after


def _run(source: str | os.PathLike[str]) -> Run:
    try:
        return Run.open(source)
    except UserError as error:
        if (Path(source).expanduser() / "config.json").is_file():
            raise UserError(
                f"{source}: a model has no rows of its own; name a labelled file to judge it by"
            ) from None
        raise error


def _judged(model: Model, rows: Mapping[str, Rows], say: Say) -> Evaluation:
    for name, part in rows.items():
        if part.skipped:
            say(part.report())
        if part.gaps:
            say(f"task {name!r}: {part.gaps:,} rows of {part.source} have no label")
    found = evaluated(model, rows)
    for sentence in learned_nothing(found.scores):
        say(sentence)
    return found


def evaluated(model: Model, rows: Mapping[str, Rows]) -> Evaluation:
    """Each task's answers to its labelled rows, held against the labels."""
    examples = {
        name: Examples.of(model.tasks[name], part, model.tokenizer, model.longest, model.tagger)
        for name, part in rows.items()
    }
    predicted = _predictions(model, rows, examples)
    found = score(model.tasks, examples, predicted, intervals=True)
    evaluation = Evaluation(found, {}, {}, {}, {}, caveats=tuple(caveats(rows, model.facts)))
    for name in rows:
        truth = examples[name].truth
        assert truth is not None
        _add_classes(evaluation, name, model.tasks[name], predicted[name].values, truth)
    return evaluation


def _add_classes(
    evaluation: Evaluation, name: str, task: Task, said: NDArray[Any], truth: NDArray[Any]
) -> None:
    """What there is to say of a task's single classes."""
    labels = task.labels or ()
    match task.kind:
        case "classify" | "ordinal":
            counts = confusion(said, truth, len(labels))
            evaluation.confusion[name], evaluation.labels[name] = counts, labels
            evaluation.classes[name] = per_class(counts, labels)
        case "multilabel":
            evaluation.classes[name] = per_label(said, truth, labels)
        case "tag":
            of_label = entities.per_label(said.tolist(), truth.tolist(), labels)
            evaluation.spans[name] = of_label
        case "regress":
            pass
        case _:
            assert_never(task.kind)


def _predictions(
    model: Model, rows: Mapping[str, Rows], examples: Mapping[str, Examples]
) -> dict[str, Predictions]:
    """As training itself judges, or by the exported graph."""
    if isinstance(model, MultiTaskModel):
        return predict(
            model.network, examples, lambda passes: progress(passes, len(passes), "judging")
        )
    return {
        name: read_out(model.tasks[name], _outputs(model, name, part), examples[name])
        for name, part in rows.items()
    }


def _outputs(model: Model, name: str, rows: Rows) -> Tensor:
    texts = [text_of(parts) for parts in rows.texts]
    every = []
    for start in progress(range(0, len(texts), WINDOW), -(-len(texts) // WINDOW), "judging"):
        part = texts[start : start + WINDOW]
        asked = [(name,)] * len(part)
        whole, apart = model.forms(part, asked)
        numbers, outputs = model.outputs(whole, apart, asked)[name]
        every.append(_in_order(model.tasks[name], numbers, outputs, whole))
    return torch.cat(every)


def _in_order(task: Task, numbers: Sequence[int], outputs: Tensor, whole: Form) -> Tensor:
    """The outputs as the texts are numbered; a tag task has a row for each of a text's words."""
    if task.kind != "tag":
        return outputs[np.argsort(numbers)]
    words = whole.sequences.words
    assert words is not None
    counts = [int(words.counts[whole.places[number][0]]) for number in numbers]
    parts = outputs.split(counts)
    return torch.cat([parts[place] for place in np.argsort(numbers)])
