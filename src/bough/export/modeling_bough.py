"""One task of a bough model for transformers: code that an export carries with it.

    AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)
    AutoModel.from_pretrained(FOLDER, trust_remote_code=True)  # the trunk

It needs torch and transformers, and not bough. It answers and does not learn: there is no dropout.
`config.paths` has, for the task and for every task whose answer it reads, the cells on its path;
paths that begin alike are computed once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput

from .modeling_bough_trunk import EMBEDDINGS, LAYERS, Seen, attend


class BoughConfig(PretrainedConfig):
    """`shape`: sizes of the trunk; `paths`, `heads`: what each task passes; `task`: whose it is."""

    model_type = "bough"


class PAL(nn.Module):
    """Attention in a small space, parallel to the layer."""

    def __init__(self, settings: dict[str, Any], shape: dict[str, Any]):
        super().__init__()
        s, d = settings["size"], shape["width"]
        self.heads = settings["heads"]
        self.encode = nn.Linear(d, s, bias=False)
        self.decode = nn.Linear(s, d, bias=False)
        self.qkv = nn.ModuleDict({n: nn.Linear(s, 3 * s, bias=False) for n in settings["layers"]})

    def parallel(self, n: str, h: Tensor, padding: Tensor) -> Tensor:
        mixed = attend(self.qkv[n](self.encode(h)), self.heads, padding)
        return F.gelu(self.decode(mixed))

    def after(self, n: str, y: Tensor) -> Tensor:
        return y


class Narrow(nn.Module):
    """Down to a small space and up again; a nonlinear one has biases, and a GELU between."""

    def __init__(self, width: int, size: int, nonlinear: bool):
        super().__init__()
        self.nonlinear = nonlinear
        self.down, self.up = (
            nn.Linear(width, size, bias=nonlinear),
            nn.Linear(size, width, bias=nonlinear),
        )

    def forward(self, x: Tensor) -> Tensor:
        small = self.down(x)
        out: Tensor = self.up(F.gelu(small) if self.nonlinear else small)
        return out


class Narrows(nn.Module):
    """One for each layer: `lowrank` parallel to the layer, `bottleneck` after it."""

    def __init__(self, settings: dict[str, Any], shape: dict[str, Any]):
        super().__init__()
        self.follows = settings["kind"] == "bottleneck"
        self.parts = nn.ModuleDict(
            {n: Narrow(shape["width"], settings["size"], self.follows) for n in settings["layers"]}
        )

    def parallel(self, n: str, h: Tensor, padding: Tensor) -> Tensor | None:
        return None if self.follows else self.parts[n](h)

    def after(self, n: str, y: Tensor) -> Tensor:
        return y + self.parts[n](y) if self.follows else y


class Dense(nn.Module):
    """The pooler (tanh), a late layer or a head's hidden layer (ReLU)."""

    def __init__(self, name: str, width: int, out: int):
        super().__init__()
        self.name = name
        setattr(self, name, nn.Linear(width, out))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = getattr(self, self.name)(x)
        return torch.tanh(y) if self.name == "dense" else F.relu(y)


class Fusion(nn.Module):
    """A small attention: the own features ask, the outputs that are read answer."""

    def __init__(self, size: int, imports: list[int], fused: int):
        super().__init__()
        self.ask = nn.Linear(size, fused)
        self.keys = nn.ModuleList(nn.Linear(n, fused) for n in imports)
        self.values = nn.ModuleList(nn.Linear(n, fused) for n in imports)

    def forward(self, x: Tensor, imported: list[Tensor]) -> Tensor:
        keys = torch.stack([k(i) for k, i in zip(self.keys, imported, strict=True)], 1)
        values = torch.stack([v(i) for v, i in zip(self.values, imported, strict=True)], 1)
        scores = (keys @ self.ask(x).unsqueeze(2)).squeeze(2) * keys.shape[-1] ** -0.5
        return (torch.softmax(scores, 1).unsqueeze(1) @ values).squeeze(1)


class Head(nn.Module):
    """From a text's vector to a task's outputs; `settings` is its entry in `config.heads`."""

    def __init__(self, settings: dict[str, Any], width: int):
        super().__init__()
        self.settings = settings
        imports = settings["imports"]
        self.norm = nn.LayerNorm(width, eps=1e-12) if settings["norm"] else None
        self.project = nn.Linear(width, width) if settings["project"] else None
        attentive = bool(imports) and settings["fusion"] == "attention"
        self.fusion = Fusion(width, imports, settings["fused"]) if attentive else None
        size = width + (settings["fused"] if attentive else sum(imports))
        sizes = [size, *settings["hidden"]]
        self.hidden = nn.ModuleList(Dense("linear", a, b) for a, b in pairwise(sizes))
        self.output = nn.Linear(sizes[-1], settings["outputs"])

    def forward(self, x: Tensor, imported: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The outputs, and the hidden vector that they were read from."""
        x = x if self.norm is None else self.norm(x)
        x = x if self.project is None else self.project(x)
        if imported:
            more = imported if self.fusion is None else [self.fusion(x, imported)]
            x = torch.cat([x, *more], 1)
        for dense in self.hidden:
            x = dense(x)
        return self.output(x), x

    def exported(self, reads_as: str, outputs: Tensor, hidden: Tensor) -> Tensor:
        """What another task's head reads of this one."""
        if reads_as == "hidden":
            return hidden
        if reads_as == "logits":
            return outputs
        form = self.settings["form"]
        if form == "ce":
            return torch.softmax(outputs, 1)
        return (
            torch.sigmoid(outputs)
            if form in ("bce", "ordinal", "multilabel")
            else outputs.clamp(0, 1)
        )

    def logits(self, outputs: Tensor) -> Tensor:
        """What transformers expects: a softmax of it is the probabilities, of labels a sigmoid; or
        the number itself."""
        form, temperature = self.settings["form"], float(self.settings["temperature"])
        if form in ("ce", "multilabel"):
            return outputs / temperature
        if form == "bce":
            return torch.cat([torch.zeros_like(outputs), outputs], 1) / temperature
        if form == "number":
            low, high = map(float, self.settings["range"])
            return low + outputs * (high - low)
        if form == "ordinal":  # of each class but the last: the probability of a higher one
            above = outputs.sigmoid().cummin(1).values
            one, none = torch.ones_like(above[:, :1]), torch.zeros_like(above[:, :1])
            shares = torch.cat([one, above], 1) - torch.cat([above, none], 1)
        else:
            second = outputs.clamp(0, 1)
            shares = torch.cat([1 - second, second], 1)
        return shares.clamp(min=1e-30).log() / temperature


class BoughPreTrainedModel(PreTrainedModel):
    config_class = BoughConfig
    base_model_prefix = "bough"

    def __init__(self, config: BoughConfig):
        super().__init__(config)
        self.cells = nn.ModuleDict()
        for path in config.paths.values():
            for key, kind, number, adapters in path["steps"]:
                if key not in self.cells:
                    self.cells[key] = self._cell(kind, number)
                for adapter in adapters:
                    if adapter not in self.cells:
                        settings = config.adapters[adapter]
                        made = PAL if settings["kind"] == "pal" else Narrows
                        self.cells[adapter] = made(settings, config.shape)
        self._add_heads(config)
        self.post_init()

    def _cell(self, kind: str, number: int) -> nn.Module:
        shape = self.config.shape
        if kind == "embeddings":
            return EMBEDDINGS[shape["network"]](shape)
        if kind == "layer":
            return LAYERS[shape["network"]](shape, number)
        return Dense("dense" if kind == "pooler" else "linear", shape["width"], shape["width"])

    def _add_heads(self, config: BoughConfig) -> None:
        pass

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing starts fresh: every weight is in the folder."""

    def _pass(self, ids: Tensor, mask: Tensor | None, types: Tensor | None) -> dict[str, Any]:
        """Each path's end, and its last layer's states; beginnings in common are passed once."""
        mask = torch.ones_like(ids) if mask is None else mask
        types = torch.zeros_like(ids) if types is None else types
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        dtype = next(self.parameters()).dtype
        padding = torch.zeros_like(mask, dtype=dtype).masked_fill(
            mask == 0, torch.finfo(dtype).min
        )[:, None, None, :]
        done: dict[tuple[Any, ...], Tensor] = {}
        out: dict[str, Any] = {}
        for task, path in self.config.paths.items():
            passed: tuple[Any, ...] = ()
            x, states, seen = ids, ids, Seen(padding, positions)
            for key, kind, number, adapters in path["steps"]:
                if kind in ("pooler", "late") and x.ndim == 3:
                    x = self._read(path["pooling"], x, mask)
                    passed += (path["pooling"],)
                passed += ((key, *adapters),)
                module = self.cells[key]
                if passed not in done:
                    if kind == "embeddings":
                        done[passed] = module(ids, types, positions)
                    elif kind == "layer":
                        layer_adapters = [self.cells[adapter] for adapter in adapters]
                        done[passed] = module(x, seen, str(number), layer_adapters)
                    else:
                        done[passed] = module(x)
                x = done[passed]
                if kind == "embeddings":
                    seen = seen._replace(table=module.table())  # type: ignore[operator]
                states = x if x.ndim == 3 else states
            out[task] = states, self._read(path["pooling"], x, mask) if x.ndim == 3 else x
        return out

    @staticmethod
    def _read(pooling: str, states: Tensor, mask: Tensor) -> Tensor:
        if pooling == "mean":
            kept = mask.unsqueeze(2).to(states.dtype)
            return (states * kept).sum(1) / kept.sum(1)
        return states[torch.arange(len(states), device=states.device), mask.argmax(1)]


class BoughModel(BoughPreTrainedModel):
    """The trunk on the task's path, with the pooler if it reads one."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> BaseModelOutputWithPooling:
        states, vectors = self._pass(input_ids, attention_mask, token_type_ids)[self.config.task]
        pooled = self.config.paths[self.config.task]["steps"][-1][1] == "pooler"
        return BaseModelOutputWithPooling(
            last_hidden_state=states, pooler_output=vectors if pooled else None
        )


class BoughForSequenceClassification(BoughPreTrainedModel):
    """The task's answers."""

    def _add_heads(self, config: BoughConfig) -> None:
        width = config.shape["width"]
        for task, settings in config.heads.items():
            self.cells[f"head/{task}"] = Head(settings, width)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        passed = self._pass(input_ids, attention_mask, token_type_ids)
        done: dict[str, tuple[Tensor, Tensor]] = {}
        for task, settings in self.config.heads.items():  # those that are read come first
            imported = [
                self.cells[f"head/{read}"].exported(settings["reads_as"], *done[read])  # type: ignore[operator]
                for read in settings["reads"]
            ]
            done[task] = self.cells[f"head/{task}"](passed[task][1], imported)
        outputs, _ = done[self.config.task]
        return SequenceClassifierOutput(
            logits=self.cells[f"head/{self.config.task}"].logits(outputs)  # type: ignore[operator]
        )
