"""What holds in a phase."""

from __future__ import annotations

from bough.recipe.training import Phase, Training


def test_a_phase_takes_the_rest_from_training() -> None:
    training = Training(steps=None, epochs=7, lr=1.0, phases=[Phase(frozen=True, steps=5, lr=2.0)])
    phase = training.phases[0].over(training)
    assert (phase.steps, phase.lr, phase.phases, phase.batch) == (5, 2.0, (), training.batch)
    longer = Phase(epochs=2).over(training)
    assert (longer.steps, longer.epochs, longer.lr) == (None, 2, 1.0)
