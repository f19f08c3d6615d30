"""Where heads begin: the convex fit is scikit-learn's, under every plan, and moves heads alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge

from bough.data.examples import Examples
from bough.model.heads import Head
from bough.model.losses import loss
from bough.model.network import Network
from bough.recipe.tasks import Task
from bough.scoring.evaluate import predict
from bough.training.head_fit import STRENGTH, few_rows, fit_heads, fit_linear
from bough.training.train import resume, train
from tests import folders, tiny
from tests.finished import FEW, judged, moved

WIDTH = 6


def inputs(n: int = 60) -> torch.Tensor:
    """Vectors far from the origin, as an encoder's are."""
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(0)) * 0.3 + 2.0


def labels(x: torch.Tensor) -> torch.Tensor:
    noise = torch.randn(len(x), generator=torch.Generator().manual_seed(1)) * 0.2
    return torch.bucketize(x[:, 0] - x[:, 1] + noise, torch.tensor([-0.3, 0.3]))


def head_of(task: Task) -> Head:
    head = Head(task, WIDTH)
    torch.nn.init.zeros_(head.output.weight)  # type: ignore[union-attr]
    torch.nn.init.zeros_(head.output.bias)  # type: ignore[union-attr]
    return head


def unit(x: torch.Tensor) -> NDArray[Any]:
    """As the penalty sees them: about their mean, of length 1."""
    away = x - x.mean(0)
    scaled: NDArray[Any] = (away / away.square().sum(1).mean().sqrt()).numpy()
    return scaled


@pytest.mark.parametrize("balanced", [False, True])
def test_classes_are_fitted_as_scikit_learn_does(balanced: bool) -> None:
    x = inputs()
    y = labels(x)
    weights: Any = "balanced" if balanced else None
    head = head_of(tiny.task(class_weights=weights))
    fit_linear(head, x, y)
    theirs = LogisticRegression(C=STRENGTH, class_weight=weights, tol=1e-8, max_iter=5000)
    theirs.fit(unit(x), y.numpy())
    with torch.no_grad():
        ours = head([x], [], None)[0].softmax(1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(unit(x)), atol=1e-3)


def test_numbers_are_fitted_as_scikit_learn_does() -> None:
    x = inputs()
    y = 2.5 + (x[:, 0] - x[:, 2])
    head = head_of(tiny.task(number=True))
    fit_linear(head, x, y)
    theirs = Ridge(alpha=1 / (2 * STRENGTH)).fit(unit(x), (y / 5).numpy())
    with torch.no_grad():
        ours = head([x], [], None)[0][:, 0].numpy()
    np.testing.assert_allclose(ours, theirs.predict(unit(x)), atol=1e-4)


def test_features_of_a_pair_are_penalised_kind_by_kind() -> None:
    """A cosine, one small number, must not be lost beside the vectors' hundreds."""
    a, b = inputs(), inputs().flip(0)
    y = labels(a)
    head = head_of(tiny.task(twin=True, features=("difference", "product", "cosine")))
    kinds = (a - b).abs(), a * b, torch.cosine_similarity(a, b).unsqueeze(1)
    fit_linear(head, torch.cat(kinds, 1), y)
    seen = np.concatenate([unit(kind) for kind in kinds], 1) / 3**0.5
    theirs = LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=5000).fit(seen, y.numpy())
    with torch.no_grad():
        ours = head([a, b], [], None)[0].softmax(1).numpy()
    np.testing.assert_allclose(ours, theirs.predict_proba(seen), atol=1e-3)


def labelled() -> dict[str, Examples]:
    return {name: source for name, source in tiny.examples().items() if name != "joint"}


def network(plan: str, **settings: Any) -> Network:
    tasks = {
        "single": tiny.task(**settings),
        "twin": tiny.task(twin=True, number=True, **settings),
    }
    return tiny.network(plan, tasks, stir=0.05)


@pytest.mark.parametrize(
    "plan",
    ["full", "separate", "split@1, pal:8", "late:IS", "feed:single>twin", "feed~:single>twin"],
)
def test_every_plan_has_its_heads_fitted_and_nothing_else_moved(plan: str) -> None:
    one, examples = network(plan), labelled()
    before = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    fresh = {name: answer.loss for name, answer in predict(one, examples).items()}
    fit_heads(one, examples)
    fitted = {name: answer.loss for name, answer in predict(one, examples).items()}
    assert all(fitted[name] < fresh[name] for name in examples)  # type: ignore[operator]
    assert moved(before, one.state_dict()) == {"head/single", "head/twin"}


def test_a_reader_is_fitted_to_what_the_fitted_source_says() -> None:
    one, examples = network("feed:single>twin"), labelled()
    fit_heads(one, examples)
    before = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    fit_heads(one, {"twin": examples["twin"]})
    for name, tensor in one.state_dict().items():
        assert torch.allclose(tensor, before[name], atol=1e-4), name


@pytest.mark.parametrize("head", ["cosine", "mlp"])
def test_a_cosine_has_no_map_to_fit_and_an_mlp_its_last(head: str) -> None:
    tasks = {"twin": tiny.task(twin=True, number=True, head=head)}
    one = tiny.network("full", tasks)
    before = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    fit_heads(one, {"twin": tiny.examples()["twin"]})
    changed = {n for n, t in one.state_dict().items() if not torch.equal(t, before[n])}
    assert all(name.split(".")[2] == "output" for name in changed)
    assert bool(changed) == (head == "mlp")


def test_of_a_table_with_few_labels_only_their_rows_are_read() -> None:
    whole = tiny.examples()["single"]
    assert whole.targets is not None
    labelled = replace(whole, index=whole.index[:2], targets=whole.targets[:2])
    few = few_rows(labelled)
    assert len(few.sequences) == 2 < len(labelled.sequences)
    assert few.sequences.lengths.tolist() == whole.sequences.lengths[whole.index[:2, 0]].tolist()


def test_the_fit_does_not_hang_on_where_the_head_began() -> None:
    x, task = inputs(), tiny.task()
    heads = [Head(task, WIDTH) for _ in range(2)]
    for one in heads:
        fit_linear(one, x, labels(x))
    losses = [loss(task, one([x], [], None)[0], labels(x)) for one in heads]
    assert torch.equal(*losses)


def test_a_run_is_judged_before_its_first_step(tiny_folder: Path, tmp_path: Path) -> None:
    """What the fitted heads say of the untouched trunk may stay the best."""
    recipe = folders.small(tiny_folder, heads="auto", **FEW)
    fitted = train(recipe, tmp_path / "fitted")
    fresh = train(recipe, tmp_path / "fresh", ["training.heads=fresh"])
    assert judged(fitted)[0]["step"] == 0
    assert judged(fitted)[0]["best"]
    assert judged(fresh)[0]["step"] > 0
    assert judged(fitted)[-1]["step"] == judged(fresh)[-1]["step"] == FEW["steps"]


def test_phases_say_themselves_how_heads_begin(tiny_folder: Path, tmp_path: Path) -> None:
    phases = [{"frozen": True, "steps": 2}]
    recipe = folders.small(tiny_folder, heads="auto", phases=phases, evaluate_rows=8)
    assert judged(train(recipe, tmp_path / "run"))[0]["step"] == 2


def test_a_run_from_before_goes_on_with_fresh_heads(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, **FEW), tmp_path / "run")
    weights = (run.model / "model.safetensors").read_bytes()
    text = run.recipe_file.read_text()
    run.recipe_file.write_text(text.replace("  heads: fresh\n", ""))
    assert "heads: " not in run.recipe_file.read_text()
    (run.folder / "scores.json").unlink()
    run.checkpoint.unlink()
    assert (resume(run.folder).model / "model.safetensors").read_bytes() == weights
