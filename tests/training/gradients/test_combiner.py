import math
from pathlib import Path

import pytest
import torch
import torchjd.aggregation as jd
from torch import nn
from torch.nn import functional as F

from bough.distributed import ALONE, Processes, joined
from bough.errors import UserError
from bough.recipe.methods import COMBINATIONS
from bough.training.gradients.combiner import Combiner, Group
from tests.ranks import together

TASKS = ("sst", "para", "sts")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Net(nn.Module):
    """Words and a layer for all, a layer for two of the three, a head for each."""

    def __init__(self, sparse: bool = False, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.words = nn.Embedding(40, 6, sparse=sparse)
            self.low = nn.Linear(6, 6)
            self.high = nn.ModuleDict({"sst": nn.Linear(6, 6), "para+sts": nn.Linear(6, 6)})
            self.heads = nn.ModuleDict({task: nn.Linear(6, 1) for task in TASKS})
        self.double()

    def forward(self, task: str, ids: torch.Tensor) -> torch.Tensor:
        high = self.high["sst" if task == "sst" else "para+sts"]
        states = torch.tanh(high(torch.tanh(self.low(self.words(ids)))))
        out: torch.Tensor = self.heads[task](states).squeeze(-1)
        return out

    def loss(self, task: str, ids: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self(task, ids), torch.sin(ids.double() * (1 + TASKS.index(task))))

    def groups(self) -> list[Group]:
        return [
            Group(TASKS, [*self.words.parameters(), *self.low.parameters()]),
            Group(("sst",), list(self.high["sst"].parameters())),
            Group(("para", "sts"), list(self.high["para+sts"].parameters())),
            *(Group((task,), list(head.parameters())) for task, head in self.heads.items()),
        ]

    def combiner(self, method: str, seed: int = 0, processes: Processes = ALONE) -> Combiner:
        by_rows = [self.words.weight] if self.words.sparse else []
        return Combiner(method, self.groups(), TASKS, generator(seed), processes, by_rows)

    def gradients(self) -> dict[str, torch.Tensor | None]:
        return {name: p.grad for name, p in self.named_parameters()}


def batch(seed: int = 0, tasks=TASKS, n: int = 5) -> dict[str, torch.Tensor]:
    g = generator(seed)
    return {task: torch.randint(40, (n,), generator=g) for task in tasks}


def step(net: Net, combiner: Combiner, examples: dict[str, torch.Tensor]):
    for task, ids in examples.items():
        net.loss(task, ids).backward()
        combiner.take(task)
    return combiner.finish()


def rows(net: Net, parameters, tasks, examples) -> torch.Tensor:
    """Each task's plain gradient on these parameters, one row per task."""
    found = []
    for task in tasks:
        gradients = torch.autograd.grad(net.loss(task, examples[task]), parameters)
        found.append(torch.cat([g.to_dense().flatten() for g in gradients]))
    return torch.stack(found)


def flat(parameters) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in parameters])


# --- whose gradient counts ---

THEIRS = {
    "sum": jd.Sum,
    "mean": jd.Mean,
    "pcgrad": jd.PCGrad,
    "gradvac": jd.GradVac,
    "mgda": jd.MGDA,
    "imtl-g": jd.IMTLG,
    "aligned-mtl": jd.AlignedMTL,
    "fairgrad": lambda: jd.FairGrad(1.0),
}


@pytest.mark.parametrize("method", THEIRS)
@pytest.mark.parametrize("sparse", [False, True])
def test_each_group_is_combined_by_itself_as_torchjd_would(method, sparse):
    examples, net = batch(), Net(sparse)
    combiner = net.combiner(method)
    told = step(net, combiner, examples)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for group in combiner.groups:
            jacobian = rows(net, group.parameters, group.users, examples)
            expected = jacobian[0] if len(jacobian) == 1 else THEIRS[method]()(jacobian)
            torch.testing.assert_close(flat(group.parameters), expected, atol=1e-7, rtol=1e-5)
    assert set(told) == {"sst+para+sts", "para+sts"}


@pytest.mark.parametrize("method", COMBINATIONS)
def test_heads_keep_their_plain_gradient(method):
    examples, net = batch(), Net()
    step(net, net.combiner(method), examples)
    for task in TASKS:
        own = list(net.heads[task].parameters())
        torch.testing.assert_close(flat(own), rows(net, own, (task,), examples)[0])


def test_lengths_and_angles_are_of_the_shared_part_alone():
    """With large head gradients in them, the dot products would show no conflict."""
    shared, heads = nn.Parameter(torch.zeros(2)), [nn.Parameter(torch.zeros(2)) for _ in "ab"]
    combiner = Combiner(
        "pcgrad",
        [Group(("a", "b"), [shared]), Group(("a",), [heads[0]]), Group(("b",), [heads[1]])],
        ("a", "b"),
        generator(),
    )
    for task, head, gradient in zip("ab", heads, ([1.0, 0.0], [-1.0, 1.0]), strict=True):
        shared.grad, head.grad = torch.tensor(gradient), torch.tensor([100.0, 100.0])
        combiner.take(task)
    combiner.finish()
    torch.testing.assert_close(shared.grad, torch.tensor([0.5, 1.5]))
    assert [flat([head]).tolist() for head in heads] == [[100.0, 100.0]] * 2


def test_two_conflicting_tasks_leave_no_residual():
    g = generator(1)
    a, b = torch.randn(50, generator=g), torch.randn(50, generator=g)
    b -= (a @ b / (a @ a) + 0.3) * a  # surely against a
    p = nn.Parameter(torch.zeros(50))
    combiner = Combiner("pcgrad", [Group(("a", "b"), [p])], ("a", "b"), generator())
    for task, gradient in (("a", a), ("b", b)):
        p.grad = gradient.clone()
        combiner.take(task)
    told = combiner.finish()["a+b"]
    # Of the two projections, each is one plain gradient and a share of the other.
    a_left, b_left = a + (told["b"] - 1) * b, b + (told["a"] - 1) * a
    assert float(a_left @ b) == pytest.approx(0, abs=1e-5)
    assert float(b_left @ a) == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(p.grad, a_left + b_left)


def test_a_gradient_on_what_a_task_does_not_use_is_dropped():
    net = Net()
    combiner = net.combiner("pcgrad")
    (
        net.loss("sst", torch.tensor([1, 2])) + net.get_parameter("heads.para.weight").sum()
    ).backward()
    combiner.take("sst")
    net.loss("sts", torch.tensor([3])).backward()
    combiner.take("sts")
    combiner.finish()
    assert net.heads["para"].weight.grad is None


# --- who is present ---


@pytest.mark.parametrize("method", COMBINATIONS)
def test_absent_tasks_have_no_gradient_and_do_not_move(method):
    net = Net(sparse=True)
    combiner = net.combiner(method)
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)
    for seed, tasks in enumerate([TASKS, ("sst", "para"), ("sst",), ("sst", "para")]):
        before = {n: p.detach().clone() for n, p in net.named_parameters()}
        step(net, combiner, batch(seed, tasks))
        gradients = net.gradients()
        idle = {n for n in gradients if n.startswith("heads.") and n.split(".")[1] not in tasks}
        if tasks == ("sst",):
            idle |= {n for n in gradients if "para+sts" in n}
        assert {n for n, g in gradients.items() if g is None} == idle
        optimiser.step()
        optimiser.zero_grad()
        for name, p in net.named_parameters():
            assert torch.equal(p, before[name]) == (name in idle)


@pytest.mark.parametrize("method", COMBINATIONS)
def test_one_task_alone_has_its_plain_gradient(method):
    net, examples = Net(), batch(tasks=("para",))
    told = step(net, net.combiner(method), examples)
    own = [p for p in net.parameters() if p.grad is not None]
    torch.testing.assert_close(flat(own), rows(net, own, ("para",), examples)[0])
    assert told == {}


def test_a_step_without_tasks():
    net = Net()
    assert net.combiner("pcgrad").finish() == {}
    assert all(g is None for g in net.gradients().values())


# --- adding up ---


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", COMBINATIONS)
def test_micro_batches_add_up(method, sparse):
    examples, one, other = batch(n=7), Net(sparse), Net(sparse)
    step(one, one.combiner(method), examples)
    combiner = other.combiner(method)
    for cut in (slice(0, 3), slice(3, 7)):
        for task, ids in examples.items():
            (other.loss(task, ids[cut]) * (len(ids[cut]) / 7)).backward()
            combiner.take(task)
    combiner.finish()
    for name, gradient in one.gradients().items():
        torch.testing.assert_close(other.gradients()[name], gradient)


def test_a_sum_may_take_several_tasks_at_once():
    examples, one, other = batch(), Net(True), Net(True)
    step(one, one.combiner("sum"), examples)
    combiner = other.combiner("sum")
    assert not combiner.apart
    torch.stack([other.loss(task, ids) for task, ids in examples.items()]).sum().backward()
    combiner.take(*TASKS)
    combiner.finish()
    for name, gradient in one.gradients().items():
        torch.testing.assert_close(other.gradients()[name], gradient)


def test_surgery_refuses_several_tasks_at_once():
    combiner = Net().combiner("pcgrad")
    assert combiner.apart
    with pytest.raises(ValueError, match="one backward per task"):
        combiner.take("sst", "sts")


# --- sparse gradients ---


@pytest.mark.parametrize("method", COMBINATIONS)
def test_sparse_embeddings_learn_as_dense_ones(method):
    nets = [Net(sparse) for sparse in (False, True)]
    combiners = [net.combiner(method) for net in nets]
    optimisers = [torch.optim.AdamW(net.parameters(), lr=0.05) for net in nets]
    for seed in range(6):
        for net, combiner, optimiser in zip(nets, combiners, optimisers, strict=True):
            step(net, combiner, batch(seed, TASKS[: 1 + seed % 3]))
            gradient = net.words.weight.grad
            assert gradient is not None
            assert not gradient.is_sparse
            optimiser.step()
            optimiser.zero_grad()
    for (name, a), b in zip(nets[0].named_parameters(), nets[1].parameters(), strict=True):
        torch.testing.assert_close(b, a, msg=name)


def test_dense_and_sparse_gradients_of_one_parameter_mix():
    p = nn.Parameter(torch.zeros(6, 2))
    combiner = Combiner("sum", [Group(("a", "b"), [p])], ("a", "b"), generator())
    rows = torch.sparse_coo_tensor(
        torch.tensor([[1, 1, 4]]), torch.ones(3, 2), (6, 2), check_invariants=True
    )
    for task, gradients in {"a": (rows, torch.ones(6, 2), rows), "b": (rows,)}.items():
        for gradient in gradients:
            p.grad = gradient.clone()
            combiner.take(task)
    combiner.finish()
    assert p.grad is not None
    assert p.grad[:, 0].tolist() == [1, 7, 1, 1, 4, 1]


# --- numbers ---


@pytest.mark.parametrize("method", COMBINATIONS)
def test_a_task_without_slope_brings_no_nan(method):
    p = nn.Parameter(torch.zeros(3))
    combiner = Combiner(method, [Group(("a", "b", "c"), [p])], tuple("abc"), generator())
    for task, gradient in {"a": [1.0, 2, 3], "b": [0.0, 0, 0], "c": [-1.0, 0, 1]}.items():
        p.grad = torch.tensor(gradient)
        combiner.take(task)
    combiner.finish()
    assert flat([p]).isfinite().all()


def test_a_gradient_that_is_no_number_is_not_hidden():
    p = nn.Parameter(torch.zeros(2))
    combiner = Combiner("cagrad", [Group(("a", "b"), [p])], ("a", "b"), generator())
    for task, gradient in {"a": [1.0, math.nan], "b": [0.0, 1.0]}.items():
        p.grad = torch.tensor(gradient)
        combiner.take(task)
    combiner.finish()
    assert flat([p]).isnan().any()


def test_dot_products_of_long_gradients_are_exact():
    g = generator(2)
    a, b = (torch.randn(3_000_001, generator=g) for _ in "ab")
    p = nn.Parameter(torch.zeros(3_000_001))
    combiner = Combiner("pcgrad", [Group(("a", "b"), [p])], ("a", "b"), generator())
    for task, gradient in (("a", a), ("b", b)):
        p.grad = gradient.clone()
        combiner.take(task)
    expected = float(a.double() @ b.double() / (a.double().norm() * b.double().norm()))
    assert combiner.cosines()["a+b"]["a+b"] == pytest.approx(expected, abs=1e-7)


def test_half_precision():
    p = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    combiner = Combiner("pcgrad", [Group(("a", "b"), [p])], ("a", "b"), generator())
    for task, gradient in (("a", [1.0, 0.0]), ("b", [-1.0, 1.0])):
        p.grad = torch.tensor(gradient, dtype=torch.bfloat16)
        combiner.take(task)
    combiner.finish()
    assert flat([p]).tolist() == [0.5, 1.5]


# --- cosines ---


@pytest.mark.parametrize("sparse", [False, True])
def test_cosines(sparse):
    examples, net = batch(), Net(sparse)
    combiner, plain = net.combiner("sum"), Net(sparse)
    for task, ids in examples.items():
        net.loss(task, ids).backward()
        combiner.take(task)
    places = {"words": list(net.words.parameters()), "low": list(net.low.parameters())}
    found = combiner.cosines(places)
    by_group = combiner.cosines()
    combiner.finish()
    for place, module in (("words", plain.words), ("low", plain.low)):
        own = rows(plain, list(module.parameters()), TASKS, examples)
        assert set(found[place]) == {"sst+para", "sst+sts", "para+sts"}
        for pair, value in found[place].items():
            a, b = (own[TASKS.index(task)] for task in pair.split("+"))
            assert value == pytest.approx(float(F.cosine_similarity(a, b, 0)), abs=1e-7)
    assert set(by_group) == {"sst+para+sts", "para+sts"}
    assert set(by_group["para+sts"]) == {"para+sts"}
    other = Net(sparse)
    step(other, other.combiner("sum"), examples)
    for name, gradient in other.gradients().items():
        torch.testing.assert_close(net.gradients()[name], gradient)


def test_cosines_leave_out_what_is_not_there():
    net = Net()
    combiner = net.combiner("pcgrad")
    for task, ids in batch(tasks=("sst", "sts")).items():
        (net.loss(task, ids) * (task == "sst")).backward()
        combiner.take(task)
    assert combiner.cosines() == {}
    with pytest.raises(RuntimeError, match="before cosines"):
        combiner.take("para")


def test_cosines_are_of_those_that_share():
    """Two groups at one place: nothing is said of tasks that have nothing in common there."""
    one, other = (nn.Parameter(torch.zeros(3)) for _ in range(2))
    groups = [Group(("a", "b"), [one]), Group(("c", "d"), [other])]
    combiner = Combiner("sum", groups, tuple("abcd"), generator())
    for task, parameter in (("a", one), ("b", one), ("c", other), ("d", other)):
        parameter.grad = torch.tensor([1.0, ord(task) % 3, 0.5])
        combiner.take(task)
    assert set(combiner.cosines({"layer 1": [one, other]})["layer 1"]) == {"a+b", "c+d"}


def test_cosines_need_the_tasks_apart():
    net = Net()
    combiner = net.combiner("sum")
    torch.stack([net.loss(task, ids) for task, ids in batch().items()]).sum().backward()
    combiner.take(*TASKS)
    with pytest.raises(ValueError, match="one backward per task"):
        combiner.cosines()


# --- groups and mistakes ---


def test_groups_of_the_same_users_are_one():
    a, b, c = (nn.Parameter(torch.zeros(1)) for _ in "abc")
    groups = [Group(("x", "y"), [a]), Group(("y", "x"), [b]), Group(("x",), [c])]
    combiner = Combiner("sum", groups, ("x", "y"), generator())
    assert [group.name for group in combiner.groups] == ["x+y", "x"]
    assert [len(group.parameters) for group in combiner.groups] == [2, 1]


def test_wrong_groups():
    p = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="exactly one group"):
        Combiner("sum", [Group(("x",), [p]), Group(("y",), [p])], ("x", "y"), generator())
    for users in ((), ("z",), ("x", "z")):
        with pytest.raises(ValueError, match="not among"):
            Combiner("sum", [Group(users, [p])], ("x", "y"), generator())


def test_an_unknown_method_is_a_mistake():
    with pytest.raises(UserError, match="did you mean 'pcgrad'"):
        Net().combiner("pcgrads")


def test_memory_survives_a_reload():
    net, again = Net(), Net()
    first, whole = net.combiner("gradvac"), again.combiner("gradvac")
    for seed in range(3):
        step(net, first, batch(seed))
        step(again, whole, batch(seed))
    second = net.combiner("gradvac")
    second.load_state_dict(first.state_dict())
    second.weighting.generator.set_state(first.weighting.generator.get_state())
    net.zero_grad()
    again.zero_grad()
    assert step(net, second, batch(7)) == step(again, whole, batch(7))


# --- several processes ---

SPREAD = ("sum", "pcgrad", "gradvac", "upgrad")


def spread(folder: Path) -> None:
    """What each of two processes does: two steps by every method, on its share of the examples."""
    with joined() as processes:
        found = {}
        for method in SPREAD:
            for sparse in (False, True):
                net = Net(sparse)
                combiner = net.combiner(method, processes=processes)
                for seed in (0, 1):
                    net.zero_grad()
                    for task, ids in shard(batch(seed, n=8), processes.rank).items():
                        if len(ids):
                            (net.loss(task, ids) * (len(ids) / 8)).backward()
                            combiner.take(task)
                    assert combiner.add_up([processes.rank + 1.0, 0.5], apart=True) == [3.0, 1.0]
                    cosines = combiner.cosines()
                    combiner.finish()
                found[method, sparse] = (net.gradients(), cosines)
        torch.save(found, folder / f"{processes.rank}.pt")
        torch.save(exchanged(processes), folder / f"{processes.rank}-bytes.pt")


def exchanged(processes: Processes) -> list[tuple[int, int]]:
    """Bytes of a step of a sum, together and apart, and what they should be."""
    out = []
    for apart in (False, True):
        net = Net(sparse=True)
        combiner = net.combiner("sum", processes=processes)
        examples = batch(3, n=8)
        for task, ids in shard(examples, processes.rank).items():
            if len(ids):
                (net.loss(task, ids) * (len(ids) / 8)).backward()
                combiner.take(task)
        before = processes.exchanged
        combiner.add_up([1.0], apart)
        low, layer, head = 6 * 6 + 6, 6 * 6 + 6, 6 + 1
        words = [ids.unique() for ids in examples.values()]
        if apart:  # each task's of all that it uses
            numbers = 3 * (low + layer + head) + 6 * sum(map(len, words))
            flags = 3 * (2 + 2 + 2) + 3 * 40
        else:  # every weight's once
            numbers = low + 2 * layer + 3 * head + 6 * len(torch.cat(words).unique())
            flags = 2 + 2 * 2 + 3 * 2 + 40
        out.append((processes.exchanged - before, flags + 8 * (numbers + 1)))
    return out


def shard(examples: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """Unequal shares: sst is only on the first process, the others are 3 to 5."""
    cuts = {"sst": 8, "para": 3, "sts": 5}
    return {t: ids[: cuts[t]] if rank == 0 else ids[cuts[t] :] for t, ids in examples.items()}


def test_gradients_are_added_up_over_processes_before_surgery(tmp_path):
    together(2, tmp_path, "tests.training.gradients.test_combiner:spread")
    both = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    for method in SPREAD:
        for sparse in (False, True):
            net = Net(sparse)
            combiner = net.combiner(method)
            for seed in (0, 1):
                net.zero_grad()
                for task, ids in batch(seed, n=8).items():
                    net.loss(task, ids).backward()
                    combiner.take(task)
                cosines = combiner.cosines()
                combiner.finish()
            for gradients, theirs in (found[method, sparse] for found in both):
                for name, gradient in net.gradients().items():
                    torch.testing.assert_close(gradients[name], gradient, msg=f"{method} {name}")
                for place, pairs in cosines.items():
                    assert theirs[place] == pytest.approx(pairs)
    for name, gradient in both[0]["pcgrad", False][0].items():
        assert torch.equal(gradient, both[1]["pcgrad", False][0][name])
    for rank in (0, 1):
        for counted, computed in torch.load(tmp_path / f"{rank}-bytes.pt"):
            assert counted == computed
