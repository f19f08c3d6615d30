"""Losses are torch's, on labels brought to one scale; answers read the outputs as the loss does."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from bough.model.losses import answers, class_weights, loss
from bough.recipe.tasks import Task

LABELS = ("0", "1", "2", "3", "4")


def classify(classes: int = 5, **settings: Any) -> Task:
    return Task(kind="classify", text="s", label="y", labels=LABELS[:classes], **settings)


def regress(low: float = 0.0, high: float = 5.0, **settings: Any) -> Task:
    return Task(kind="regress", text="s", label="y", range=(low, high), **settings)


TASKS = {
    "ce": classify(),
    "ce smoothed": classify(smoothing=0.1),
    "bce": classify(2),
    "bce smoothed": classify(2, smoothing=0.2),
    "ordinal": classify(loss="ordinal"),
    "ordinal smoothed": classify(loss="ordinal", smoothing=0.1),
    "two classes by mse": classify(2, loss="mse"),
    "mse": regress(),
    "mae": regress(loss="mae"),
    "huber": regress(-3, 7, loss="huber"),
}
WHOLE = {"pearson": regress(loss="pearson")}  # of a whole batch: its parts do not add up
SEVERAL = {"multilabel": Task(kind="multilabel", text="s", label="y", labels=LABELS)}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
every_loss = pytest.mark.parametrize(
    "task", [*TASKS.values(), *WHOLE.values(), *SEVERAL.values()], ids=[*TASKS, *WHOLE, *SEVERAL]
)


def draw(task: Task, n: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(n, task.outputs, generator=generator, dtype=torch.float64)
    if task.kind == "multilabel":
        targets = torch.randint(2, (n, task.outputs), generator=generator)
    elif task.kind == "regress":
        low, high = task.range or (0, 1)
        targets = low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)
    else:
        targets = torch.randint(task.classes, (n,), generator=generator)
    return outputs, targets


def likelihoods(task: Task, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The answers of a classify task."""
    chosen, probabilities = answers(task, outputs)
    assert probabilities is not None
    return chosen, probabilities


def weights_of(task: Task, labels: Tensor) -> Tensor:
    weights = class_weights(task, labels)
    assert weights is not None
    return weights


# --- the numbers ----------------------------------------------------------------------------------


def test_cross_entropy_is_torchs():
    outputs, targets = draw(classify())
    expected = F.cross_entropy(outputs, targets, label_smoothing=0.1)
    torch.testing.assert_close(loss(classify(smoothing=0.1), outputs, targets), expected)


def test_binary_cross_entropy_is_torchs():
    task = classify(2)
    outputs, targets = draw(task)
    expected = F.binary_cross_entropy_with_logits(outputs[:, 0], targets.double())
    torch.testing.assert_close(loss(task, outputs, targets), expected)


def test_one_logit_equals_two_with_the_other_at_zero():
    outputs, targets = draw(classify(2))
    both = torch.cat([torch.zeros_like(outputs), outputs], 1)
    for smoothing in (0.0, 0.3):
        one = loss(classify(2, smoothing=smoothing), outputs, targets)
        two = loss(classify(2, smoothing=smoothing, loss="ce"), both, targets)
        torch.testing.assert_close(one, two)


def test_real_labels_are_scaled_inside():
    outputs, targets = draw(regress())
    expected = F.mse_loss(outputs[:, 0], targets / 5)
    torch.testing.assert_close(loss(regress(), outputs, targets), expected)
    expected = F.l1_loss(outputs[:, 0], targets / 5)
    torch.testing.assert_close(loss(regress(loss="mae"), outputs, targets), expected)
    shifted = loss(regress(-10, 40), outputs, targets * 10 - 10)
    torch.testing.assert_close(shifted, loss(regress(), outputs, targets))


def test_the_correlation_loss_is_the_squares_and_one_minus_pearsons_r():
    task = regress(0, 5, loss="pearson")
    outputs = torch.tensor([[0.1], [0.9], [0.4], [0.35]])
    targets = torch.tensor([1.0, 4.0, 0.5, 5.0])
    r = scipy.stats.pearsonr(outputs[:, 0].numpy(), targets.numpy()).statistic
    squares = ((outputs[:, 0] - targets / 5) ** 2).mean()
    assert loss(task, outputs, targets).item() == pytest.approx(squares.item() + 1 - r, rel=1e-5)
    constant = torch.full((4, 1), 0.5, requires_grad=True)
    loss(task, constant, targets).backward()
    assert constant.grad is not None
    assert torch.isfinite(constant.grad).all()


def test_huber_bends_within_the_range():
    task = regress(0, 1, loss="huber")

    def slope(error: float) -> float:
        out = torch.tensor([[error]], requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(task, out, torch.zeros(1)), out)
        return gradient.item()

    assert slope(0.05) == pytest.approx(0.05)
    assert slope(0.4) == pytest.approx(0.1) == slope(0.9)


def test_two_classes_by_mse():
    task = classify(2, loss="mse")
    outputs, targets = draw(task)
    expected = F.mse_loss(outputs[:, 0], targets.double())
    torch.testing.assert_close(loss(task, outputs, targets), expected)


def test_ordinal_by_hand():
    task = classify(3, loss="ordinal")
    outputs = torch.tensor([[1.0, -2.0], [0.5, 0.25], [3.0, 0.0]])
    above = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    p = outputs.sigmoid()
    expected = -(above * p.log() + (1 - above) * (1 - p).log()).mean()
    torch.testing.assert_close(loss(task, outputs, torch.tensor([0, 1, 2])), expected)


# --- faults that others had -----------------------------------------------------------------------


@every_loss
def test_gradients_are_right(task):
    outputs, targets = draw(task)
    outputs.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: loss(task, x, targets), (outputs,))


@every_loss
def test_every_output_has_a_gradient(task):
    """Rounding or an argmax inside the loss would leave none."""
    outputs, targets = draw(task)
    outputs.requires_grad_()
    (gradient,) = torch.autograd.grad(loss(task, outputs, targets), outputs)
    assert gradient.all()


def test_real_labels_are_not_cut_to_integers():
    a = loss(regress(), torch.zeros(1, 1), torch.tensor([3.0]))
    b = loss(regress(), torch.zeros(1, 1), torch.tensor([3.8]))
    assert float(b) == pytest.approx(0.76**2)
    assert float(a) == pytest.approx(0.6**2)


@pytest.mark.parametrize("name", ["mse", "mae", "huber"])
@pytest.mark.parametrize("label", [0.0, 0.3, 2.5, 5.0])
def test_every_label_can_be_reached(name, label):
    task = regress(loss=name)
    outputs = torch.full((1, 1), 0.5, requires_grad=True)
    optimiser = torch.optim.Adam([outputs], lr=0.02)
    for _ in range(400):
        optimiser.zero_grad()
        loss(task, outputs, torch.tensor([label])).backward()
        optimiser.step()
    value, probabilities = answers(task, outputs)
    assert float(value) == pytest.approx(label, abs=0.15)
    assert probabilities is None


@every_task
@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 6), seed=st.integers(0, 99))
def test_parts_of_a_batch_add_up(task, cut, seed):
    """A short last batch counts by its examples, also with class weights."""
    outputs, targets = draw(task, seed=seed)
    weights = None if task.kind == "regress" else torch.arange(1.0, task.classes + 1)
    whole = loss(task, outputs, targets, weights)
    parts = [
        loss(task, outputs[s], targets[s], weights) * len(targets[s])
        for s in (slice(cut), slice(cut, None))
    ]
    torch.testing.assert_close(whole, sum(parts) / len(targets))


@every_task
def test_labels_scale_no_loss_above_the_others(task):
    outputs = torch.zeros(100, task.outputs, dtype=torch.float64)
    _, targets = draw(task, 100)
    assert 0.01 < float(loss(task, outputs, targets)) < 2


@every_task
def test_shapes_that_would_broadcast_are_refused(task):
    outputs, targets = draw(task)
    for bad in (outputs[:0], outputs[:3], outputs.repeat(1, 3), outputs[:, 0]):
        with pytest.raises(ValueError, match="do not fit"):
            loss(task, bad, targets)
    with pytest.raises(ValueError, match="do not fit"):
        loss(task, outputs, targets[:, None])
    with pytest.raises(ValueError, match="n > 0"):
        loss(task, outputs[:0], targets[:0])


@every_task
def test_half_precision_outputs_are_judged_in_full(task):
    outputs, targets = draw(task)
    half = outputs.bfloat16()
    found = loss(task, half, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(task, half.float(), targets))
    assert answers(task, half)[0].dtype in (torch.int64, torch.float32)


@pytest.mark.parametrize("task", [TASKS["ce"], TASKS["bce"], TASKS["ordinal"]])
def test_extreme_logits_stay_finite(task):
    for sign in (-1, 1):
        outputs = torch.full((2, task.outputs), 1e4 * sign, requires_grad=True)
        value = loss(task, outputs, torch.tensor([0, 1]))
        (gradient,) = torch.autograd.grad(value, outputs)
        assert value.isfinite()
        assert gradient.isfinite().all()
        assert likelihoods(task, outputs)[1].isfinite().all()


# --- class weights --------------------------------------------------------------------------------


def test_balanced_weights():
    task = classify(3, class_weights="balanced")
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    weights = weights_of(task, labels)
    torch.testing.assert_close(weights, torch.tensor([10 / 18, 10 / 9, 10 / 3]))
    assert float(weights[labels].mean()) == pytest.approx(1)
    assert class_weights(classify(), labels) is None


def test_balanced_weights_of_a_class_without_rows_are_finite():
    task = classify(3, class_weights="balanced")
    assert weights_of(task, torch.tensor([0, 0, 1])).isfinite().all()


def test_given_weights_follow_the_classes():
    task = classify(3, class_weights={"2": 4.0, "0": 0.5})
    torch.testing.assert_close(weights_of(task, torch.tensor([0])), torch.tensor([0.5, 1, 4]))


@pytest.mark.parametrize("name", ["ce", "bce", "ordinal", "two classes by mse"])
def test_a_class_weight_multiplies_its_examples(name):
    task = TASKS[name]
    outputs, targets = draw(task, 20)
    weights = torch.arange(1.0, task.classes + 1)
    expected = sum(
        loss(task, outputs[i : i + 1], targets[i : i + 1]) * (targets[i] + 1) for i in range(20)
    )
    torch.testing.assert_close(loss(task, outputs, targets, weights), expected / 20)


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ce", "bce", "ordinal", "two classes by mse"])
def test_probabilities(name):
    task = TASKS[name]
    outputs, _ = draw(task, 200)
    chosen, probabilities = likelihoods(task, outputs)
    assert probabilities.shape == (200, task.classes)
    assert probabilities.min() >= 0
    torch.testing.assert_close(probabilities.sum(1), torch.ones(200, dtype=torch.float64))
    assert torch.equal(chosen, probabilities.argmax(1))


@every_task
def test_learned_answers_are_the_targets(task):
    """The loss and the answer read the outputs alike."""
    _, targets = draw(task, 12)
    outputs = torch.zeros(12, task.outputs, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([outputs], lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        loss(task, outputs, targets).backward()
        optimiser.step()
    found, _ = answers(task, outputs)
    torch.testing.assert_close(found, targets, atol=0.5 if task.kind == "regress" else 0, rtol=0)


def test_values_come_back_in_their_range():
    task = regress(-2, 6)
    values, _ = answers(task, torch.tensor([[-0.3], [0.0], [0.25], [1.0], [7.0]]))
    assert values.tolist() == [-2, -2, 0, 6, 6]


def test_ordinal_probabilities_by_hand():
    task = classify(3, loss="ordinal")
    p = torch.tensor([[0.9, 0.3], [0.2, 0.6]])
    chosen, probabilities = likelihoods(task, p.logit())
    torch.testing.assert_close(probabilities, torch.tensor([[0.1, 0.6, 0.3], [0.8, 0.0, 0.2]]))
    assert chosen.tolist() == [1, 0]


# --- temperature ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.labels])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_a_temperature_changes_no_answer(name: str, temperature: float) -> None:
    task = TASKS[name]
    outputs, _ = draw(task, 200)
    chosen, before = likelihoods(task, outputs)
    same, after = likelihoods(task.model_copy(update={"temperature": temperature}), outputs)
    assert torch.equal(chosen, same)
    torch.testing.assert_close(after.sum(1), torch.ones(200, dtype=after.dtype))
    assert torch.equal(before.argsort(1), after.argsort(1)) or name == "two classes by mse"
    sure, then = before.max(1).values, after.max(1).values
    if temperature == 1:
        torch.testing.assert_close(before, after)
    else:
        close = 1e-9  # where one class has it all
        assert ((then >= sure - close) if temperature < 1 else (then <= sure + close)).all()


def test_a_temperature_divides_the_logits() -> None:
    outputs, _ = draw(classify(), 50)
    _, found = likelihoods(classify(temperature=2.5), outputs)
    torch.testing.assert_close(found, (outputs / 2.5).softmax(1))
    outputs, _ = draw(classify(2), 50)
    _, found = likelihoods(classify(2, temperature=2.5), outputs)
    torch.testing.assert_close(found[:, 1:], (outputs / 2.5).sigmoid())
