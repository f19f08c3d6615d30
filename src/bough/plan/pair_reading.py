"""Whether the texts of a pair are read as one sequence or apart, where the recipe leaves it open.

One sequence lets every word see the other text, which takes rows to learn. An encoder that was made
to give sentences comparable vectors can compare them at once: with few rows that is far better. No
torch: what decides are the rows and what the encoder was made for.
"""

from __future__ import annotations

from collections.abc import Mapping

from bough.recipe.tasks import Task, on_one_table

ENOUGH_ROWS = 2000  # to learn the comparison itself (docs/defaults.md)


def resolved(
    tasks: Mapping[str, Task], rows: Mapping[str, int], compares: bool
) -> tuple[dict[str, Task], list[str]]:
    """The tasks, `pair: auto` replaced, and what there is to say about it. `rows` are their train
    rows; `compares`: the encoder was made to compare sentences, and nothing speaks against it."""
    out, notes = dict(tasks), []
    shared = on_one_table(tasks)  # read once for all its tasks, so in one way
    for name, task in tasks.items():
        if not task.paired or task.pair != "auto":
            continue
        few = rows[name] < ENOUGH_ROWS and name not in shared
        pair = "twin" if compares and few else "joint"
        out[name] = task.model_copy(update={"pair": pair})
        if pair == "twin":
            notes.append(
                f"task {name!r}: the texts of a pair are read apart (pair: twin), which this "
                f"encoder was made for and {rows[name]:,} rows suffice for"
            )
        elif compares and name not in shared:
            notes.append(
                f"task {name!r}: the texts of a pair are read as one (pair: joint), which "
                f"{rows[name]:,} rows suffice for; pair: twin reads them apart"
            )
    return out, notes
