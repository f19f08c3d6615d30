"""Whether the tests would notice: one line at a time is made wrong, and a test must fail.

    python tools/mutants.py [WORD ...]

With words, only the mutants that have one of them in their name. The project is copied to a
temporary folder first, where the tests that are asked must pass as they are. Prints who killed
whom; exit code 1 if a mutant survives, or if a line to be replaced is not there (once) any more.
Needs a system that can fork.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

# What the tests load, most of it through bough.
LOADED = (
    "torchjd.aggregation", "torchjd.scalarization", "scipy.optimize", "scipy.stats", "cvxpy",
    "sklearn.metrics", "hypothesis.strategies", "tokenizers", "safetensors.torch", "rich",
)  # fmt: skip
ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "recipes", "pyproject.toml")


class Mutant(NamedTuple):
    name: str
    file: str  # of src/bough
    right: str
    wrong: str
    tests: str  # the files to run, below tests/
    like: str = ""  # pytest's -k


STEP, PHASE = "training/test_step.py", "training/test_phase.py"
COMBINER = "training/gradients/test_combiner.py"
METHODS = "every_combination"
MUTANTS = (
    Mutant(
        "step: any method is the mean", "training/step.py",
        "            training.combine,\n", '            "mean",\n', STEP, METHODS,
    ),
    Mutant(
        "step: a part counts as the whole", "training/step.py",
        "weighted[task] * part.shares[task] for", "weighted[task] for", STEP, "parts_are_one_step",
    ),
    Mutant(
        "step: the plain losses go backward", "training/step.py",
        "weighted = self.weighting.scale(plain, self._means(plain, part))", "weighted = plain",
        STEP, "every_weighting",
    ),
    Mutant(
        "step: nothing is clipped", "training/step.py",
        "optimizer.clip(self.parameters, self.training.clip)",
        "optimizer.clip(self.parameters, None)", STEP, "clipped",
    ),
    Mutant(
        "step: the second look has other dropout", "training/step.py",
        "        replay.set_state(dropout)\n", "", STEP, "famo_looks_again",
    ),
    Mutant(
        "step: the average is forgotten", "training/step.py",
        "            self.average.update(self.run_share)\n", "            pass\n", STEP, "average",
    ),
    Mutant(
        "phase: an epoch never ends for the weighting", "training/phase.py",
        "            self.stepper.weighting.close_epoch()\n", "",
        "training/test_trainer.py", "dwa_weighs",
    ),
    Mutant(
        "phase: the samplers are not restored", "training/phase.py",
        '            sampler.restore(state["decks"][name])\n', "            pass\n",
        PHASE, "restored",
    ),
    Mutant(
        "phase: the rate of the step before", "training/phase.py",
        "factor(self.progress.done, self.steps", "factor(self.progress.done - 1, self.steps",
        PHASE, "counts_its_steps",
    ),
    Mutant(
        "combiner: others' heads are moved, too", "training/gradients/combiner.py",
        "used = any(task in group.users for task in tasks)", "used = True",
        COMBINER, "does_not_use",
    ),
    Mutant(
        "combiner: half of the Gram matrix", "training/gradients/combiner.py",
        "gram[i, j] = gram[j, i] = torch", "gram[i, j] = torch", STEP, METHODS,
    ),
    Mutant(
        "combiner: later parts replace earlier ones", "training/gradients/combiner.py",
        "_plus(taken[key], gradient) if key in taken else gradient", "gradient",
        STEP, "parts_are_one_step",
    ),
    Mutant(
        "combiner: rows of the last step stay", "training/gradients/combiner.py",
        "            whole.index_fill_(0, filled, 0)\n", "", COMBINER, "sparse",
    ),
    Mutant(
        "gradient weighting: PCGrad without conflict", "training/gradients/weighting.py",
        "if j != i and against < 0:", "if j != i:", STEP, METHODS,
    ),
    Mutant(
        "gradient weighting: GradVac remembers the wrong way", "training/gradients/weighting.py",
        "(1 - rate) * target + rate * cosine", "rate * target", STEP, METHODS,
    ),
    Mutant(
        "gradient solvers: UPGrad is DualProj", "training/gradients/solvers.py",
        "_weights(UPGradWeighting(", "_weights(DualProjWeighting(", STEP, METHODS,
    ),
    Mutant(
        "gradient solvers: CAGrad without its radius", "training/gradients/solvers.py",
        "    return 1 / m + reach / length * w\n", "    return 1 / m + 0 * w\n", STEP, METHODS,
    ),
    Mutant(
        "gradient weighting: FairGrad's scale is lost", "training/gradients/weighting.py",
        "size ** (-self.number / (1 + self.number))", "1.0", STEP, METHODS,
    ),
    Mutant(
        "loss weighting: DWA upside down", "training/loss_weighting.py",
        "h[1] / h[0] for", "h[0] / h[1] for", STEP, "every_weighting",
    ),
    Mutant(
        "loss weighting: uncertainty climbs", "training/loss_weighting.py",
        "task: 0.5 - 0.5 * math.exp", "task: 0.5 * math.exp", STEP, "every_weighting",
    ),
    Mutant(
        "loss weighting: FAMO without its mean", "training/loss_weighting.py",
        "shares[task] * (gain[task] - mean)", "shares[task] * gain[task]", STEP, "every_weighting",
    ),
    Mutant(
        "loss weighting: given weights are lost", "training/loss_weighting.py",
        "{task: self.weights[task] * factors[task] for", "{task: factors[task] for",
        STEP, "weighted_losses",
    ),
    Mutant(
        "sampler: sizes whatever the power", "training/sampling.py",
        "self.alpha(epoch) * math.log(size)", "math.log(size)",
        "training/test_sampling.py", "frequencies",
    ),
    Mutant(
        "sampler: the last batch is full", "training/sampling.py",
        "{task: min(self.batch, size - step * self.batch)}", "{task: self.batch}",
        "training/test_sampling.py",
    ),
    Mutant(
        "example sampler: a pass begins with a cut batch", "data/examples.py",
        "self._shuffle(count % self.batch), 0", "self._shuffle(0), 0", "data/test_examples.py",
    ),
    Mutant(
        "example sampler: every pass in one order", "data/examples.py",
        "        order = self.rng.permutation(len(self.lengths))\n",
        "        order = np.arange(len(self.lengths))\n", "data/test_examples.py",
    ),
    Mutant(
        "example sampler: its generator is not restored", "data/examples.py",
        '        self.rng.bit_generator.state = state["rng"]\n', "", "data/test_examples.py",
    ),
    Mutant(
        "packing: every table's sequences are the first", "data/packing.py",
        "view(len(numbers), -1) + start\n", "view(len(numbers), -1)\n", "data/test_packing.py",
    ),
    Mutant(
        "loader: tasks together all the same", "data/loader.py",
        "        if not apart and batches:\n", "        if batches:\n",
        "data/test_loader.py",
    ),
    Mutant(
        "loader: a step of any size at once", "data/loader.py",
        "if not parts or tokens + size > most_tokens:\n", "if not parts:\n",
        "data/test_loader.py",
    ),
    Mutant(
        "loader: a process takes its share for the whole", "data/loader.py",
        "own = {task: here.get(task, 0) / size for", "own = {task: 1.0 for",
        "data/test_loader.py", "processes_share",
    ),
    Mutant(
        "distributed: everyone has every example", "distributed.py",
        "numbers[(self.rank - turn) % self.count :: self.count]", "numbers[::1]",
        "test_distributed.py", "nothing_is_lost",
    ),
    Mutant(
        "statistics: a width that is no square", "scoring/statistics.py",
        "square = z * z * self.examples", "square = z * self.examples",
        "scoring/test_statistics.py",
    ),
    Mutant(
        "statistics: seeds as sure as examples", "scoring/statistics.py",
        "t = _t(alpha, side.degrees)", "t = z", "scoring/test_statistics.py",
    ),
    Mutant(
        "optimizer: the lowest layers learn fastest", "training/optimizer.py",
        "layer_decay ** (top - part.depth)", "layer_decay**part.depth",
        "training/test_optimizer.py", "rates",
    ),
    Mutant(
        "optimizer: biases decay", "training/optimizer.py",
        "(scale, parameter.ndim > 1)", "(scale, True)", "training/test_optimizer.py", "decays",
    ),
    Mutant(
        "learning rate: a first step of 0", "training/optimizer.py",
        "return (step + 1) / rise", "return step / rise", "training/test_optimizer.py",
    ),
    Mutant(
        "average: held back at the beginning", "training/weight_average.py",
        "min(self.decay, (1 + self.steps) / (10 + self.steps))", "self.decay",
        "training/test_weight_average.py",
    ),
)  # fmt: skip


def run_tests(root: Path, mutants: list[Mutant]) -> tuple[int, str]:
    """pytest's exit code, and the tests that failed or what it said last.

    In a fork of this process, which has all that the tests import but bough: loading it again for
    every mutant would take ten times as long as the tests.
    """
    files = sorted({f"tests/{mutant.tests}" for mutant in mutants})
    like = sorted({mutant.like for mutant in mutants})
    words = ["-q", "-x", "-p", "no:cacheprovider", *files]
    words += ["-k", " or ".join(like)] if all(like) else []
    told = root / "told.txt"
    child = os.fork()
    if not child:
        code = 3
        try:
            with open(told, "w", encoding="utf-8") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            os.chdir(root)
            sys.path[:0] = [str(root / "src"), str(root)]
            torch.set_num_threads(1)
            code = int(pytest.main(words))
        finally:
            sys.stdout.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    lines = told.read_text(encoding="utf-8").splitlines()
    failed = [line.split()[1] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return code, ", ".join(failed or lines[-1:]).replace("tests/", "")


def judged(root: Path, mutant: Mutant) -> tuple[bool, str]:
    """Whether a test failed because of it, and which."""
    file = root / "src" / "bough" / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.right) != 1:
        return False, f"NOT FOUND (once) in {mutant.file}: {mutant.right.strip()}"
    file.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
    try:
        code, tests = run_tests(root, [mutant])
    finally:
        file.write_text(text, encoding="utf-8")
    if code == 1:
        return True, tests
    return False, "SURVIVED" if code == 0 else f"NO TESTS RAN ({tests})"


def main() -> None:
    for name in LOADED:
        importlib.import_module(name)
    sys.dont_write_bytecode = True  # two versions of a file within a second look like one
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    words = sys.argv[1:]
    chosen = [m for m in MUTANTS if not words or any(word in m.name for word in words)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, root / name)
        for part in ([m for m in chosen if m.like], [m for m in chosen if not m.like]):
            code, tests = run_tests(root, part) if part else (0, "")
            if code:
                sys.exit(f"the tests do not pass as they are: {tests}")
        wide = max(len(mutant.name) for mutant in chosen)
        print(f"{'mutant':{wide}}  killed by", flush=True)
        alive = 0
        for mutant in chosen:
            began = time.monotonic()
            killed, by = judged(root, mutant)
            alive += not killed
            print(f"{mutant.name:{wide}}  {by} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - alive} of {len(chosen)} mutants killed")
    sys.exit(alive > 0)


if __name__ == "__main__":
    main()
