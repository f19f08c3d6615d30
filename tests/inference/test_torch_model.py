"""The model in torch: its weights are saved once each, and what is shared stays shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from bough.errors import UserError
from bough.inference.load import load_torch
from bough.inference.model import Text
from bough.inference.torch_model import MultiTaskModel
from bough.runs.run_dir import Run
from tests.inference.texts import LONG, SHORT, TEXTS, close


def test_saved_and_loaded_again_and_again(run: Run, model: MultiTaskModel, tmp_path: Path) -> None:
    first = (run.model / "model.safetensors").read_bytes()
    answers = model.predict(TEXTS)
    folder = run.folder
    for number in range(3):
        folder = load_torch(folder).save(tmp_path / str(number))
        assert (folder / "model.safetensors").read_bytes() == first
        assert load_torch(folder).predict(TEXTS) == answers
    assert str(load_torch(tmp_path / "2").plan) == str(model.plan)
    assert load_torch(tmp_path / "2").tasks == model.tasks


def test_every_weight_is_there_once(run: Run, model: MultiTaskModel) -> None:
    with safe_open(run.model / "model.safetensors", "pt") as file:
        names = set(file.keys())
    parameters = dict(model.network.named_parameters())
    assert names == set(parameters)
    assert len({p.data_ptr() for p in parameters.values()}) == len(parameters)
    size = (run.model / "model.safetensors").stat().st_size
    assert 0 < size - 4 * sum(p.numel() for p in parameters.values()) < 20_000
    embeddings = [name for name in names if "words" in name]
    assert len(embeddings) == 1, "the shared vocabulary is not copied for each task"


def test_what_is_shared_stays_shared(run: Run) -> None:
    """A weight of a shared cell moves all of its users and no one else, also after loading."""
    before = load_torch(run)
    users = {cell.key: set(own) for cell, own in before.plan.users().items()}
    dice = torch.Generator().manual_seed(0)
    for key, own in users.items():
        changed = load_torch(run)
        with torch.no_grad():
            for parameter in changed.network.cells[key].parameters():
                parameter.add_(torch.randn(parameter.shape, generator=dice))
        texts: list[Text] = [LONG, (SHORT, LONG)]
        moved = set()
        for old, new in zip(before.predict(texts), changed.predict(texts), strict=True):
            moved |= {task for task in old if not close({task: old[task]}, {task: new[task]})}
        readers = {"similarity"} if "questions" in own else set()
        assert moved == own | readers, key


def test_one_task_as_a_model_of_its_own(model: MultiTaskModel, tmp_path: Path) -> None:
    for task in model.tasks:
        alone = model.only(task)
        folder = alone.save(tmp_path / task)
        text: Any = (SHORT, LONG) if model.tasks[task].paired else LONG
        whole = model.predict(text, task)
        assert close(load_torch(folder).predict(text, task), whole)
    sizes = [(tmp_path / t / "model.safetensors").stat().st_size for t in model.tasks]
    assert max(sizes) < 4 * sum(p.numel() for p in model.network.parameters())


def test_a_folder_with_other_things_in_it_is_not_saved_into(
    model: MultiTaskModel, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("my own")
    with pytest.raises(UserError, match="other files are in it; give a folder of the model's own"):
        model.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
    with pytest.raises(UserError, match="is a file; give a folder for the model"):
        model.save(tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == "my own"


def test_a_folder_at_home(
    model: MultiTaskModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert model.save("~/mine") == tmp_path / "home" / "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["home"]
    assert list(load_torch("~/mine").tasks) == list(model.tasks)
