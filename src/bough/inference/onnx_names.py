"""What the exported graphs' inputs and outputs are called: writer and runner agree on it here."""

from __future__ import annotations

from collections.abc import Sequence

from bough.model.network import Network

TEXTS_FILE, PAIRS_FILE = "model.onnx", "pairs.onnx"
IDS, TYPES, ASKED = "in.ids", "in.types", "in.asked"  # no task's name has a dot
SIDES = ("first", "second")  # the two texts of a twin pair
Sizes = dict[str, int | str]  # name -> its last dimension


def vector_name(task: str) -> str:
    """Each text's vector as this task's head reads it."""
    return f"{task}.vector"


def read_name(reader: str, source: str) -> str:
    """What a twin task's head reads of a task on single texts."""
    return f"{reader}.reads.{source}"


def joined(network: Network, task: str) -> dict[str, int]:
    """What the pairs' graph takes of each of the two texts for a twin task's own head: widths."""
    out = {vector_name(task): network.shape.width}
    sizes = iter(network.imports[task])
    for read in network.plan.reading(task):
        size = next(sizes)
        if not network.tasks[read.source].paired:
            next(sizes)  # the same for the second text
            out[read_name(task, read.source)] = size
    return out


def twins(network: Network, task: str) -> list[str]:
    """The twin tasks whose heads a twin task's answer needs, its own last."""
    return [t for t in (*network.plan.sources(task), task) if network.tasks[t].twin]


def texts_form(network: Network) -> tuple[Sizes, Sizes]:
    """What the texts' graph takes, and what it gives."""
    given: Sizes = {vector_name(name): network.shape.width for name in network.tasks}
    for name, task in network.tasks.items():
        given |= joined(network, name) if task.twin else {name: task.outputs}
    return {IDS: "length", TYPES: "length", ASKED: len(network.tasks)}, given


def pairs_form(network: Network) -> tuple[Sizes, Sizes]:
    """What the pairs' graph takes, and what it gives."""
    twin = [name for name, task in network.tasks.items() if task.twin]
    widths = {name: width for task in twin for name, width in joined(network, task).items()}
    taken: Sizes = {f"{name}.{side}": n for name, n in widths.items() for side in SIDES}
    return taken, {task: network.tasks[task].outputs for task in twin}


def wanted(network: Network, tasks: Sequence[str]) -> list[str]:
    """The outputs of the texts' graph that these tasks' answers need."""
    names = [
        name
        for task in tasks
        for name in (
            [name for t in twins(network, task) for name in joined(network, t)]
            if network.tasks[task].twin
            else [task]
        )
    ]
    return list(dict.fromkeys(names))
