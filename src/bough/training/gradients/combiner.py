"""Many losses, one gradient: each parameter's gradient is made from the tasks that use it.

Parameters are grouped by exactly who uses them. After each task's own backward its gradients are
taken over as they are, without a copy; at the end of the step a group with one task present keeps
that task's gradient, and a group with several looks at the small matrix of their dot products,
asks the method for coefficients and adds the gradients up. A head thus always learns from its
own task's plain gradient, and what no task touched in a step has no gradient at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bough.distributed import ALONE, Processes
from bough.training.gradients.weighting import GradientWeighting

# All dot products of one stretch of the gradients come before the next, while it is in the cache;
# each sums so few terms in single precision that nothing is lost, and their sum is in double.
_CHUNK = 1 << 18
_TOGETHER = ""  # the key of gradients taken from several tasks at once


@dataclass(frozen=True)
class Group:
    """Parameters and exactly those tasks that use them."""

    users: tuple[str, ...]
    parameters: Sequence[nn.Parameter]

    @property
    def name(self) -> str:
        return "+".join(self.users)


@dataclass(frozen=True)
class _Slot:
    """The place of a gradient, or of some of its rows, in the message to the other processes."""

    key: str
    parameter: nn.Parameter
    rows: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        whole = tuple(self.parameter.shape)
        return whole if self.rows is None else (len(self.rows), *whole[1:])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def fill(self, part: Tensor, gradient: Tensor | None) -> None:
        part = part.view(self.shape)
        if gradient is None:
            part.zero_()
        elif self.rows is None:
            part.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        elif gradient.is_sparse:
            places = torch.searchsorted(self.rows, gradient._indices()[0])
            part.zero_().index_add_(0, places, gradient._values())
        else:
            part.copy_(gradient[self.rows])

    def gradient(self, part: Tensor) -> Tensor:
        part = part.view(self.shape)
        if self.rows is None:
            return part
        shape = self.parameter.shape
        return torch.sparse_coo_tensor(self.rows[None], part, shape, check_invariants=False)


class Combiner:
    """Takes the tasks' gradients one by one and leaves the combined ones in `.grad`.

    A step is: backward, `take`, for each task (and micro-batch); over several processes `add_up`;
    then `finish`; then the optimiser's step and `zero_grad(set_to_none=True)`. Gradients taken from
    a task in one step add up, here and over the processes, before anything is combined: a loss
    that is a part of the task's loss in this step carries its share.

    The generator must stand alike in all processes. Embeddings may give sparse gradients (then
    they are named in `by_rows`), which stay as small as they are, also on their way to other
    processes, until they are put into a dense `.grad` that is kept for the purpose.
    """

    def __init__(
        self,
        method: str,
        groups: Iterable[Group],
        tasks: Sequence[str],
        generator: torch.Generator,
        processes: Processes = ALONE,
        by_rows: Iterable[Tensor] = (),
    ):
        self.tasks = tuple(tasks)
        self.processes = processes
        self.by_rows = set(by_rows)
        self.weighting = GradientWeighting(method, generator)
        self.groups = _by_users(groups, self.tasks)
        self._parameters = [p for group in self.groups for p in group.parameters]
        self._taken: dict[nn.Parameter, dict[str, Tensor]] = {}
        self._rows: dict[nn.Parameter, Tensor] = {}  # rows that the taken gradients stand for
        self._dense: dict[nn.Parameter, tuple[Tensor, Tensor]] = {}  # kept `.grad`, rows in use
        self._flat = torch.empty(0)  # what goes to the other processes, used again in every step
        self._settled = False

    @property
    def apart(self) -> bool:
        """Whether every task needs a backward of its own; a sum may take several at once."""
        return self.weighting.name != "sum"

    @torch.no_grad()
    def take(self, *tasks: str, apart: bool = True) -> None:
        """Take over the gradients that a backward of these tasks' loss has just left.

        Not `apart`, they are only wanted added up with the other tasks'.
        A gradient on a parameter that none of them uses is dropped: it came by way of another
        task's head, which they read and do not move.
        """
        if self.apart and (len(tasks) > 1 or not apart):
            raise ValueError(f"{self.weighting.name} needs one backward per task")
        if self._settled:
            raise RuntimeError("gradients are taken before cosines and finish, not after")
        key = tasks[0] if apart and len(tasks) == 1 else _TOGETHER
        for group in self.groups:
            used = any(task in group.users for task in tasks)
            for parameter in group.parameters:
                gradient, parameter.grad = parameter.grad, None
                if gradient is None or not used:
                    continue
                taken = self._taken.setdefault(parameter, {})
                taken[key] = _plus(taken[key], gradient) if key in taken else gradient

    @torch.no_grad()
    def add_up(self, numbers: Sequence[float], apart: bool) -> list[float]:
        """Add up what was taken over the processes, and these numbers with it.

        A short message says which gradients, and which of their rows, there are anywhere; one long
        message has all of them, end to end. What a process has not counts as zero; what none has
        stays without a gradient. `apart`, alike in all: whether a task's gradients are its own.
        """
        if self.processes.count == 1:
            return list(numbers)
        if not apart:
            for taken in self._taken.values():
                gradient, *others = taken.values()
                for other in others:
                    gradient = _plus(gradient, other)
                taken.clear()
                taken[_TOGETHER] = gradient
        slots = self._anywhere(self.tasks if apart else (_TOGETHER,))
        flat = self._buffer(sum(slot.size for slot in slots) + len(numbers))
        *parts, last = flat.split([*(slot.size for slot in slots), len(numbers)])
        for slot, part in zip(slots, parts, strict=True):
            slot.fill(part, self._taken.get(slot.parameter, {}).get(slot.key))
        last.copy_(torch.tensor(numbers, dtype=flat.dtype))
        self.processes.add_up(flat)
        self._taken = {}  # anew: in all processes in the same order, in which they will be summed
        for slot, part in zip(slots, parts, strict=True):
            self._taken.setdefault(slot.parameter, {})[slot.key] = slot.gradient(part)
        return [float(number) for number in last]

    @torch.no_grad()
    def cosines(
        self, places: Mapping[str, Sequence[nn.Parameter]] | None = None
    ) -> dict[str, dict[str, float]]:
        """Cosine between the gradients of each two tasks at each place, by default each group.

        Asked between the last `take` and `finish`; `{"layer 1": {"sst+sts": -0.12}}`. Pairs that
        share nothing there, or of which one has no gradient, are left out.
        """
        self._settle()
        cosines: dict[str, dict[str, float]] = {}
        for place, parameters in (places or {g.name: g.parameters for g in self.groups}).items():
            keys = self._present(parameters)
            if _TOGETHER in keys:
                raise ValueError("cosines need one backward per task")
            gram = self._gram(parameters, keys)
            lengths = gram.diagonal().sqrt()
            taken = [self._taken[p].keys() for p in parameters if p in self._taken]
            pairs = {
                f"{keys[i]}+{keys[j]}": float(gram[i, j] / (lengths[i] * lengths[j]))
                for i in range(len(keys))
                for j in range(i + 1, len(keys))
                if lengths[i] > 0 and lengths[j] > 0
                if any({keys[i], keys[j]} <= present for present in taken)
            }
            if pairs:
                cosines[place] = pairs
        return cosines

    @torch.no_grad()
    def finish(self) -> dict[str, dict[str, float]]:
        """Combine what was taken into `.grad`; returns the coefficients of each group with
        several tasks present."""
        self._settle()
        coefficients: dict[str, dict[str, float]] = {}
        for group in self.groups:
            keys = self._present(group.parameters)
            if len(keys) > 1:
                gram = self._gram(group.parameters, keys) if self.weighting.looks else None
                factors = self.weighting.coefficients(group.name, keys, gram)
                coefficients[group.name] = dict(zip(keys, factors, strict=True))
            for parameter in group.parameters:
                taken = self._taken.get(parameter)
                if taken is not None:
                    parameter.grad = self._whole(
                        parameter, _add_up(taken, coefficients.get(group.name))
                    )
        self._taken.clear()
        self._rows.clear()
        self._settled = False
        return coefficients

    def state_dict(self) -> dict[str, Any]:
        """What the method remembers between steps."""
        return self.weighting.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weighting.load_state_dict(state)

    def _present(self, parameters: Iterable[nn.Parameter]) -> list[str]:
        """The tasks that have a gradient here, in the tasks' order."""
        keys = {key for p in parameters for key in self._taken.get(p, ())}
        return [key for key in (*self.tasks, _TOGETHER) if key in keys]

    def _gram(self, parameters: Iterable[nn.Parameter], keys: Sequence[str]) -> Tensor:
        """Dot products between the tasks' gradients, `[tasks, tasks]` in double on the CPU."""
        m = len(keys)
        dots: dict[tuple[int, int], list[Tensor]] = {
            (i, j): [] for i in range(m) for j in range(i, m)
        }
        for parameter in parameters:
            taken = self._taken.get(parameter, {})
            here = [i for i, key in enumerate(keys) if key in taken]
            parts = (_single(taken[keys[i]]).reshape(-1).split(_CHUNK) for i in here)
            for chunk in zip(*parts, strict=True):
                pieces = dict(zip(here, chunk, strict=True))
                for (i, j), sums in dots.items():
                    if i in pieces and j in pieces:
                        sums.append(torch.dot(pieces[i], pieces[j]))
        gram = torch.zeros(m, m, dtype=torch.float64)
        for (i, j), sums in dots.items():
            if sums:
                gram[i, j] = gram[j, i] = torch.stack(sums).cpu().double().sum()
        return gram

    def _settle(self) -> None:
        """All gradients of the step are in: align the sparse ones."""
        if self._settled:
            return
        for parameter, taken in self._taken.items():
            if any(gradient.is_sparse for gradient in taken.values()):
                self._align(parameter, taken)
        self._settled = True

    def _anywhere(self, keys: Sequence[str]) -> list[_Slot]:
        """The gradients that any process has: of these keys, in an order that all agree on."""
        possible = [
            (key, p)
            for key in keys
            for group in self.groups
            if key == _TOGETHER or key in group.users
            for p in group.parameters
            if p.requires_grad
        ]
        whole = [(key, p) for key, p in possible if p not in self.by_rows]
        sparse = [(key, p) for key, p in possible if p in self.by_rows]
        device = self._parameters[0].device
        given = [key in self._taken.get(p, ()) for key, p in whole]
        flags = [torch.tensor(given, dtype=torch.uint8, device=device)]
        for key, p in sparse:
            rows = torch.zeros(len(p), dtype=torch.uint8, device=device)
            gradient = self._taken.get(p, {}).get(key)
            if gradient is not None:
                rows[gradient._indices()[0] if gradient.is_sparse else slice(None)] = 1
            flags.append(rows)
        told = self.processes.largest(torch.cat(flags)).split([len(part) for part in flags])
        there = told[0].tolist()
        slots = [_Slot(key, p) for (key, p), flag in zip(whole, there, strict=True) if flag]
        for (key, p), part in zip(sparse, told[1:], strict=True):
            rows = part.nonzero()[:, 0]
            if len(rows):
                slots.append(_Slot(key, p, rows))
        return slots

    def _buffer(self, size: int) -> Tensor:
        like = self._parameters[0]
        if len(self._flat) < size:
            self._flat = torch.empty(size, dtype=like.dtype, device=like.device)
        return self._flat[:size]

    def _align(self, parameter: nn.Parameter, taken: dict[str, Tensor]) -> None:
        """Sparse gradients of one parameter as dense ones over the rows that any of them has."""
        if not all(gradient.is_sparse for gradient in taken.values()):
            for key in taken:
                taken[key] = taken[key].to_dense()
            return
        indices = [gradient._indices()[0] for gradient in taken.values()]
        rows, places = torch.unique(torch.cat(indices), return_inverse=True)
        split = places.split([len(part) for part in indices])
        for (key, gradient), place in zip(list(taken.items()), split, strict=True):
            values = gradient._values()
            taken[key] = values.new_zeros(len(rows), *values.shape[1:]).index_add_(0, place, values)
        self._rows[parameter] = rows

    def _whole(self, parameter: nn.Parameter, gradient: Tensor) -> Tensor:
        """A gradient in the parameter's own shape; rows are put into a tensor of zeros that is
        used again in every step, because making a large one costs more than filling it."""
        rows = self._rows.get(parameter)
        if rows is None:
            return gradient
        if parameter in self._dense:
            whole, filled = self._dense[parameter]
            whole.index_fill_(0, filled, 0)
        else:
            whole = torch.zeros_like(parameter)
        self._dense[parameter] = (whole, rows)
        return whole.index_copy_(0, rows, gradient)


def _by_users(groups: Iterable[Group], tasks: tuple[str, ...]) -> tuple[Group, ...]:
    """One group for each set of users that occurs, its users in the tasks' order."""
    merged: dict[tuple[str, ...], list[nn.Parameter]] = {}
    for group in groups:
        users = tuple(task for task in tasks if task in group.users)
        if not users or len(users) != len(set(group.users)):
            raise ValueError(f"the users of a group, {group.users}, are not among {tasks}")
        merged.setdefault(users, []).extend(group.parameters)
    if len({id(p) for members in merged.values() for p in members}) < sum(
        map(len, merged.values())
    ):
        raise ValueError("a parameter belongs to exactly one group, once")
    return tuple(Group(users, tuple(members)) for users, members in merged.items())


def _single(gradient: Tensor) -> Tensor:
    return gradient.float() if gradient.dtype in (torch.bfloat16, torch.float16) else gradient


def _plus(a: Tensor, b: Tensor) -> Tensor:
    """The sum, in place where one of them is dense."""
    if not a.is_sparse:
        return a.add_(b)
    return a + b if b.is_sparse else b.add_(a)


def _add_up(taken: Mapping[str, Tensor], factors: Mapping[str, float] | None) -> Tensor:
    """The gradients times their factors, summed in the place of the first."""
    (key, whole), *others = taken.items()
    if factors is None:
        return whole
    if factors[key] != 1:
        whole.mul_(factors[key])
    for key, gradient in others:
        if factors[key] != 0:
            whole.add_(gradient, alpha=factors[key])
    return whole
