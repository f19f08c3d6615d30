"""Answers that are to be steady: the same under other dropout, and under small moves of the words.

R-Drop (https://arxiv.org/abs/2106.14448): every batch is passed twice, with other units dropped,
and what the two answers differ by is added to their mean loss. SMART
(https://arxiv.org/abs/1911.03437): the answer is compared with that for embeddings moved, within a
small box, to where it changes most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bough.errors import UserError
from bough.recipe.tasks import Task
from bough.training.objective.agreement import disagreement

STEP = 100  # of the ascent, in radii; the start is noise of one radius: the paper's ratios

Outputs = Mapping[str, Tensor]


def r_drop(
    tasks: Mapping[str, Task], losses: Sequence[Outputs], outputs: Sequence[Outputs], alpha: float
) -> dict[str, Tensor]:
    """Of two passes: the mean loss, and alpha times the mean divergence between both answers."""
    one, other = outputs
    return {
        name: (losses[0][name] + losses[1][name]) / 2
        + alpha * disagreement(tasks[name], one[name], other[name])
        for name in one
    }


class MovedEmbeddings:
    """Noise added to what the embeddings give, one number for each of a batch's."""

    def __init__(self, modules: Sequence[nn.Module], radius: float, chance: torch.Generator):
        self.modules = modules
        self.radius = radius
        self.chance = chance
        self.noise: list[Tensor] = []  # one for each call within a pass, in order
        self.called = 0

    @contextmanager
    def added(self) -> Iterator[None]:
        """Within, in one pass, the modules' outputs are moved."""
        self.called = 0
        hooks = [module.register_forward_hook(self._move) for module in self.modules]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _move(self, module: nn.Module, _: object, out: Tensor) -> Tensor:
        if self.called == len(self.noise):
            drawn = torch.randn(out.shape, generator=self.chance, device=self.chance.device)
            self.noise.append((self.radius * drawn).requires_grad_())
        self.called += 1
        return out + self.noise[self.called - 1].to(out.dtype)

    def ascend(self, height: Tensor) -> None:
        """Move the noise to where this is greatest, within the box of the radius: each token's
        gradient is scaled to its largest number."""
        gradients = torch.autograd.grad(height, self.noise, allow_unused=True)
        for number, gradient in enumerate(gradients):
            noise = self.noise[number].detach()
            if gradient is not None:
                largest = gradient.abs().amax(1, keepdim=True).clamp(min=1e-30)
                noise = noise + STEP * self.radius * gradient / largest
            self.noise[number] = noise.clamp(-self.radius, self.radius)


def smart(
    tasks: Mapping[str, Task],
    outputs: Outputs,
    again: Callable[[], Outputs],
    moved: MovedEmbeddings,
) -> dict[str, Tensor]:
    """What each task's answers change by, both directions' divergences added, under the worst
    small move of the embeddings; `again` passes the same batch with the same units dropped."""
    fixed = {name: out.detach() for name, out in outputs.items()}
    with torch.enable_grad(), moved.added():
        noisy = again()
        if not moved.noise:
            raise UserError(
                "training.smart moves the embeddings, which this plan computes once and keeps; "
                "set training.keep_states to false, or leave it out"
            )
        moved.ascend(torch.stack([_change(tasks, n, noisy[n], fixed[n]) for n in fixed]).sum())
    with moved.added():
        worst = again()
    return {name: _change(tasks, name, worst[name], out) for name, out in outputs.items()}


def _change(tasks: Mapping[str, Task], name: str, one: Tensor, other: Tensor) -> Tensor:
    return 2 * disagreement(tasks[name], one, other)
