"""A phase: its length, its order, its place in the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from bough.data.examples import examples_of
from bough.recipe.methods import SAMPLINGS
from bough.recipe.recipe import Recipe
from bough.recipe.training import Phase as Given
from bough.recipe.training import Schedule, Training
from bough.training.optimizer import factor
from bough.training.phase import Phase, PhaseSchedule, Progress, left_behind
from bough.training.sampling import BySize
from bough.training.train import train
from tests import folders, tiny
from tests.finished import FEW, final, fresh, judged, logged, moved

# Every form that a recipe may name, with numbers in the place of its letters.
NUMBERS = {"power:A": "power:0.7", "temperature:T": "temperature:2"}
NUMBERS |= {"temperature:T,cap:N": "temperature:2,cap:20"}
FORMS = [NUMBERS.get(form, form) for form in SAMPLINGS]
LABELLED = ("single", "twin")  # of tiny's examples


def phase(progress: Progress | None = None, given: Given | None = None, **settings: Any) -> Phase:
    examples = {name: tiny.examples()[name] for name in LABELLED}
    tasks = {"single": tiny.task(), "twin": tiny.task(twin=True, number=True)}
    training = Training(**{"batch": 2, "epochs": 2, "length_window": 0} | settings)
    schedule = PhaseSchedule.of(training, given, examples)
    network = tiny.network("full", tasks)
    weights = {"single": 1.0, "twin": 0.5}
    return Phase(schedule, progress or Progress(), network, examples, weights)


def test_a_phase_counts_its_steps_and_epochs() -> None:
    """Three examples in batches of two: two steps make an epoch."""
    one = phase(log_every=2, evaluate_every="epoch", lr=1e-3, warmup=0.0)
    seen: Counter[str] = Counter()
    for number in range(1, 5):
        assert not one.over
        assert one.lr == pytest.approx(1e-3 * (5 - number) / 4)
        result = one.step()
        progress = one.progress
        assert (progress.done, progress.total) == (number, number)
        assert one.epochs == number / 2
        assert one.evaluation_due == one.logging_due == (number % 2 == 0)
        seen.update(dict.fromkeys(result.losses, 2))
        assert {name: own.seen for name, own in one.samplers.items()} == seen
        assert {name: len(own) for name, own in one.losses.items()} == dict.fromkeys(seen, number)
    assert one.over
    assert len(progress.step_seconds) == 4
    assert progress.seconds == pytest.approx(sum(progress.step_seconds))


def test_the_weights_are_the_tasks_times_the_samplings() -> None:
    one = phase(sampling="method1")
    factors = one.schedule.sampler.factors
    assert factors == {"single": 1.0, "twin": 1.0}
    assert one.step().weights == {"single": 1.0, "twin": 0.5}


def test_a_phase_has_its_own_length_and_seed() -> None:
    first = phase()
    second = phase(Progress(phase=1, total=4), Given(steps=3, lr=0.5, frozen=True))
    assert (first.steps, second.steps) == (4, 3)
    assert second.schedule.frozen
    assert second.training.lr == 0.5
    orders = [[one.samplers["single"].next(6).tolist() for one in (first, second)]]
    assert orders[0][0] != orders[0][1] or first.turns.random() != second.turns.random()


@pytest.mark.parametrize(("per_epoch", "epochs"), [(1, 10), (30, 10), (40, 8), (100, 3), (5000, 3)])
def test_without_a_length_few_rows_are_gone_through_more_often(per_epoch: int, epochs: int) -> None:
    one = phase(epochs=None, steps_per_epoch=per_epoch).schedule
    assert (one.epochs, one.steps) == (epochs, epochs * per_epoch)
    assert one.describe().endswith(f"for so many rows {epochs} epochs")
    given = phase(epochs=2, steps_per_epoch=per_epoch).schedule
    assert given.describe() == given.sampler.describe()


def test_by_the_clock_the_length_is_a_forecast() -> None:
    one = phase(minutes=1, epochs=2)
    assert one.steps == 4, "before the first step, what the epochs say"
    one.progress.done, one.progress.seconds = 10, 6.0
    assert one.steps == 100
    one.progress.done, one.progress.seconds = 50, 59.999
    assert one.steps == 51, "one more fits"
    one.progress.seconds = 60.0
    assert one.steps == 50
    assert one.over
    assert one.evaluation_due


def due(one: Phase) -> list[int]:
    """The steps at which it would be judged, its clock at a tenth of a second a step."""
    found = []
    while not one.over:
        if one._epoch_ends:
            one.progress.epoch, one.progress.step = one.progress.epoch + 1, 0
        one.progress.count(10, 0.1)
        if one.evaluation_due:
            found.append(one.progress.done)
    return found


def test_a_run_shorter_than_two_epochs_is_judged_four_times() -> None:
    assert due(phase(epochs=None, steps=330, steps_per_epoch=360)) == [83, 165, 248, 330]
    assert due(phase(epochs=None, steps=99, steps_per_epoch=360)) == [99], "too few for that"
    assert due(phase(epochs=None, steps=600, steps_per_epoch=300)) == [300, 600]
    given = phase(epochs=None, steps=330, steps_per_epoch=360, evaluate_every=100)
    assert due(given) == [100, 200, 300, 330]


def test_a_run_by_the_clock_is_judged_four_times_too() -> None:
    found = due(phase(epochs=None, minutes=0.5, steps_per_epoch=360))
    assert found == pytest.approx([75, 150, 225, 300], abs=1)


@pytest.mark.parametrize("length", [{"epochs": 7}, {"steps": 41}, {"tokens": 4000}])
def test_annealing_comes_to_its_end(length: dict[str, int]) -> None:
    settings: dict[str, Any] = {"epochs": None, "sampling": "annealed", **length}
    schedule = phase(**settings).schedule
    assert isinstance(schedule.sampler, BySize)
    assert schedule.sampler.alpha(schedule.epochs - 1) == pytest.approx(0.2)


def test_annealing_comes_to_its_end_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    one = phase(epochs=9, minutes=0.1, sampling="annealed")
    drawn: list[float] = []
    draw = BySize.draw

    def watched(self: BySize, epoch: int, step: int, rng: np.random.Generator) -> dict[str, int]:
        drawn.append(self.alpha(epoch))
        return draw(self, epoch, step, rng)

    monkeypatch.setattr(BySize, "draw", watched)
    for share in (0.0, 0.5, 0.999):
        one.progress.seconds = 6 * share
        one._draw()
    assert drawn == pytest.approx([1.0, 0.6, 0.2])


@pytest.mark.parametrize("every", [1, 2])
def test_cosines_when_they_are_due(every: int) -> None:
    one = phase(cosines_every=every)
    told = [one.step().cosines is not None for _ in range(4)]
    assert told == [number % every == 0 for number in range(1, 5)]


def test_a_restored_phase_goes_on_bit_for_bit() -> None:
    settings: dict[str, Any] = {
        "sampling": "annealed", "combine": "pcgrad", "weighting": "dwa", "epochs": 9
    }  # fmt: skip
    whole, first = phase(**settings), phase(**settings)
    results = [whole.step() for _ in range(9)]
    for _ in range(5):
        first.step()
    state = first.state()
    second = phase(Progress(**state["progress"]), **settings)
    second.restore(state)
    assert [second.step() for _ in range(4)] == results[5:]
    assert second.losses == whole.losses
    names = [name for name, _ in whole.stepper.network.named_parameters()]
    for name in names:
        one, other = (p.stepper.network.get_parameter(name) for p in (whole, second))
        assert torch.equal(one, other)


@pytest.mark.parametrize("tokens", [50, 400])
def test_a_length_in_tokens(tokens: int) -> None:
    one = phase(tokens=tokens)
    spent = [one.step().tokens for _ in range(one.steps)]
    assert sum(spent) == pytest.approx(tokens, abs=max(map(float, spent)))
    assert np.mean(spent) == pytest.approx(tokens / one.steps, rel=0.2)


# --- seen from a whole run ------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_sampling(form: str, tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, **FEW | {"steps": 6}, sampling=form), tmp_path / "run")
    lines = logged(run)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    seen = lines[-1]["examples"]
    assert lines[-1]["passes"] == {task: round(seen[task] / 64, 4) for task in seen}
    per_step = 3 if form in ("each", "method1", "method2", "method3") else 1
    assert sum(seen.values()) == 6 * 8 * per_step
    assert all(len(line["loss"]) == per_step for line in lines)


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_every_schedule(schedule: Schedule, tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, **FEW, schedule=schedule, warmup=0.5, lr=1e-3)
    rates = [line["lr"] for line in logged(train(recipe, tmp_path / "run"))]
    assert rates == [1e-3 * factor(step, 4, 0.5, schedule) for step in range(4)]


def test_phases(tiny_folder: Path, tmp_path: Path) -> None:
    phases = [
        {"frozen": True, "steps": 3, "lr": 1e-2, "schedule": "constant", "warmup": 0},
        {"epochs": 1, "lr": 1e-4, "batch": 16},
    ]
    recipe = folders.small(tiny_folder, phases=phases[:1], evaluate_rows=8)
    first = train(recipe, tmp_path / "first")
    changed = moved(fresh(recipe), final(first))
    assert changed
    assert all("head" in name for name in changed), changed
    both = train(folders.small(tiny_folder, phases=phases, evaluate_rows=8), tmp_path / "both")
    lines = logged(both)
    assert [line["phase"] for line in lines] == [0] * 3 + [1] * 4
    assert [line["lr"] for line in lines[:3]] == [1e-2] * 3
    assert max(line["lr"] for line in lines[3:]) == pytest.approx(1e-4)
    assert lines[2]["examples"]["questions"] == 24
    assert lines[-1]["examples"]["questions"] == 64, "a phase counts its own examples"
    assert len(moved(final(first), final(both))) > len(changed)
    assert [entry["step"] for entry in judged(both)] == [3, 7]


def test_a_phase_that_gave_up_stays_over() -> None:
    """By the clock its length is a forecast, which must not be made from where it gave up."""
    progress = Progress(done=120, seconds=10.0, over=True)
    assert Progress(**vars(progress)) == progress
    following = progress.next_phase()
    assert (following.over, following.done) == (False, 0)


def test_a_run_writes_down_the_length_that_it_chose(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = folders.small(tiny_folder, ("sentiment",), steps_per_epoch=100, evaluate_rows=8)
    del recipe["training"]["epochs"]
    run = train(recipe, tmp_path / "run", ["training.batch=1"])
    assert Recipe.read(run.recipe_file).training.epochs == 3
    assert logged(run)[-1]["step"] == 300


def test_a_phase_may_be_some_tasks_alone(tiny_folder: Path, tmp_path: Path) -> None:
    """Those of the others are neither drawn nor moved, and those of the last phase alone count."""
    phases = [{"tasks": ["similarity"], "steps": 3}, {"tasks": ["sentiment"], "steps": 2}]
    run = train(folders.small(tiny_folder, phases=phases, evaluate_rows=8), tmp_path / "run")
    seen = [list(entry["examples"]) for entry in logged(run)]
    assert seen == [["similarity"]] * 3 + [["sentiment"]] * 2
    scores = run.scores["dev"]
    assert set(scores["tasks"]) == {"sentiment", "questions", "similarity"}
    assert scores["raw"] == scores["tasks"]["sentiment"]["accuracy"]
    before = fresh(folders.small(tiny_folder))
    changed = moved(before, final(run))
    assert {"head/sentiment", "head/similarity"} <= changed
    assert "head/questions" not in changed


@pytest.mark.parametrize(
    ("plan", "frozen", "said"),
    [("full", False, True), ("split@1", False, True), ("separate", False, False),
     ("frozen", False, False), ("full", True, False)],
)  # fmt: skip
def test_a_task_that_rests_while_its_layers_move_is_said(
    plan: str, frozen: bool, said: bool
) -> None:
    tasks = {name: tiny.task() for name in LABELLED}
    examples = {name: tiny.examples()[name] for name in LABELLED}
    phases = (Given(tasks=("single",), steps=2), Given(tasks=("twin",), steps=2, frozen=frozen))
    schedules = [PhaseSchedule.of(Training(), phase, examples) for phase in phases]
    sentences = list(left_behind(tiny.network(plan, tasks).plan, schedules))
    assert bool(sentences) == said
    if said:
        assert sentences[0].startswith("in phase 2 layers learn on that single learned with before")
    assert not list(left_behind(tiny.network(plan, tasks).plan, schedules[:1]))


def test_a_table_is_drawn_by_its_rows_and_each_task_counts_its_own() -> None:
    """Two tasks on six rows, one of which the second has no label for, in batches of four."""
    texts: list[tuple[str, ...]] = [(word,) for word in tiny.WORDS[:6]]
    rows = {
        "a": tiny.rows(texts, [0, 1, 2, 0, 1, 2]),
        "b": replace(tiny.rows(texts[1:], [0, 1, 2, 0, 1]), lines=[*range(1, 6)]),
    }
    tasks = dict.fromkeys(rows, tiny.task())
    examples = examples_of(tasks, rows, tiny.tokenizer(), 40)
    training = Training(batch=4, epochs=3, sampling="each")
    schedule = PhaseSchedule.of(training, None, examples)
    assert (schedule.sampler.tasks, schedule.steps) == (("a+b",), 6)
    made = Phase(schedule, Progress(), tiny.network("full", tasks), examples, {"a": 1.0, "b": 1.0})
    before = 0
    for number in range(1, 4):
        made.step()
        seen = made.seen()
        assert seen["a"] == (4 * number, 4 * number / 6)
        assert before < seen["b"][0] <= 4 * number
        before = seen["b"][0]
    assert made.seen()["b"] == (10, 2.0), "two passes"
