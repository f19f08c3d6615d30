"""Where a pretraining starts, and the folder it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bough.errors import UserError
from bough.inference.load import load_torch
from bough.model import pretrained
from bough.pretraining.encoder_folder import starting_point, weights, write_files
from bough.pretraining.masked_lm import MaskedLM
from bough.runs.run_dir import Writer
from bough.training.train import train
from tests import folders


def test_the_folder_is_the_encoder_again(tiny_folder: Path, tmp_path: Path) -> None:
    """With its tokenizer, its pooler and what says how it is read; weights as they were."""
    folder = folders.encoder(tmp_path / "first", width=16)
    folders.sentence_encoder(folder, {"pooling_mode_mean_tokens": True})
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertModel"]
    (folder / "config.json").write_text(json.dumps(config))
    encoder, head = starting_point(str(folder), None)
    assert head is None
    writer = Writer.start(tmp_path / "run")
    write_files(str(folder), writer)
    writer.write("encoder/model.safetensors", weights(MaskedLM.of(encoder, None, 0), encoder))
    writer.close()
    left = tmp_path / "run" / "encoder"
    again, head = starting_point(str(tmp_path / "run"), None)  # by the run's own name, too
    assert pretrained.find(str(tmp_path / "run")) == left
    assert head is not None, "its own from now on"
    assert again.pooling == encoder.pooling
    assert again.pooling.name == "mean"
    assert again.shape == encoder.shape
    assert again.tensors.keys() == encoder.tensors.keys()
    assert all(torch.equal(again.tensors[k], encoder.tensors[k]) for k in encoder.tensors)
    assert (left / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    told = json.loads((left / "config.json").read_text())
    assert told["architectures"] == ["BertForMaskedLM"]
    assert told["_name_or_path"] == str(folder)


def test_what_is_known_by_the_name_goes_along(minilm: pretrained.Encoder, tmp_path: Path) -> None:
    writer = Writer.start(tmp_path / "run")
    write_files("minilm", writer)
    writer.write("encoder/model.safetensors", weights(MaskedLM.of(minilm, None, 0), minilm))
    writer.close()
    again = pretrained.load(str(tmp_path / "run" / "encoder"))
    assert again.saw_quora
    assert again.pooling.name == minilm.pooling.name == "mean"


def test_the_trunk_of_a_run_is_taken(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, steps=2, lr=1e-2), tmp_path / "run")
    plain, _ = starting_point(str(tiny_folder), None)
    tuned, _ = starting_point(str(tiny_folder), str(run.folder))
    network = load_torch(run).network
    for cell in network.plan.users():
        for name, tensor in network.cells[cell.key].state_dict().items():
            if cell.place != "head":
                assert torch.equal(tuned.tensors[f"{cell.place}.{name}"], tensor)
    assert not torch.equal(tuned.tensors["layer 1.up.weight"], plain.tensors["layer 1.up.weight"])


@pytest.mark.parametrize("plan", ["separate", "split@1", "pal:8x4"])
def test_a_run_without_one_plain_trunk_is_refused(
    plan: str, tiny_folder: Path, tmp_path: Path
) -> None:
    run = train(folders.small(tiny_folder, steps=1, plan=plan), tmp_path / "run")
    with pytest.raises(UserError, match=rf"its plan is '{plan}'.*one trunk for all tasks"):
        starting_point(str(tiny_folder), str(run.folder))


def test_a_run_on_another_encoder_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    run = train(folders.small(tiny_folder, steps=1), tmp_path / "run")
    other = folders.encoder(tmp_path / "other", layers=3, width=16)
    with pytest.raises(UserError, match="was trained on another encoder than"):
        starting_point(str(other), str(run.folder))
    with pytest.raises(UserError, match="no such run directory"):
        starting_point(str(other), str(tmp_path / "nowhere"))
