"""Random plans for property tests: any table, any adapters, any feeds without a circle."""

from __future__ import annotations

from hypothesis import strategies as st

from bough.plan.plan import Adapter, Names, Plan, Read
from bough.plan.types import KINDS, MATRICES, Kind, adapter_order, named, pal_heads


@st.composite
def plans(
    draw: st.DrawFn, max_tasks: int = 4, max_layers: int = 6, heads: int = 4, pooled: bool = False
) -> Plan:
    """A plan for a trunk with so many heads; with `pooled` every task reads the pooler."""
    tasks = tuple("abcdefgh"[: draw(st.integers(1, max_tasks))])
    layers = draw(st.integers(1, max_layers))

    def row(nothing: bool = False) -> Names:
        labels: st.SearchStrategy[int | None] = st.integers(0, len(tasks) - 1)
        labels = st.none() | labels if nothing else labels
        return named(tasks, [draw(labels) for _ in tasks])

    def stack(size: int) -> tuple[Names, ...]:
        """Rows with likely repeats, so that the shorter forms of the language occur."""
        few = [row(), row(), named(tasks, tasks), named(tasks, [0] * len(tasks))]
        return tuple(few[draw(st.integers(0, 3))] for _ in range(size))

    if draw(st.booleans()):  # a plain split, or any table
        depth, above = draw(st.integers(0, layers)), row()
        layer = tuple(named(tasks, [0] * len(tasks)) if n < depth else above for n in range(layers))
        embeddings = named(tasks, [0] * len(tasks))
    else:
        layer, (embeddings,) = stack(layers), stack(1)
    last = layer[-1] if draw(st.booleans()) else row()
    reads_pooler = [pooled or draw(st.integers(0, 3)) > 0 for _ in tasks]
    pooler = named(tasks, [n if p else None for n, p in zip(last, reads_pooler, strict=True)])

    found: dict[str, Adapter] = {}
    for _ in range(draw(st.integers(0, 2))):
        kind: Kind = draw(st.sampled_from(KINDS))
        size = draw(st.sampled_from([1, 4, 8, 12, 16, 22]))
        first = draw(st.integers(1, layers))
        names = row(nothing=True)
        matrices = "".join(m for m in MATRICES if draw(st.booleans())) or "qv"
        divisors = [h for h in range(1, size + 1) if size % h == 0]
        adapter = Adapter(
            kind=kind,
            size=size,
            first=first,
            last=draw(st.integers(first, layers)),
            names=names,
            heads=draw(st.sampled_from([pal_heads(size, heads) or 1, *divisors]))
            if kind == "pal"
            else 0,
            matrices=matrices if kind == "lora" else "",
        )
        if any(names):
            found[adapter.place] = adapter

    order = draw(st.permutations(tasks))
    links = {
        (source, reader): draw(
            st.sampled_from([None, None, None, Read(source), Read(source, 0.0), Read(source, 0.25)])
        )
        for i, reader in enumerate(order)
        for source in order[:i]
    }
    reads = tuple(
        tuple(read for source in tasks if (read := links.get((source, reader))) is not None)
        for reader in tasks
    )
    return Plan(
        tasks=tasks,
        layers=layers,
        embeddings=embeddings,
        layer=layer,
        pooler=pooler,
        late=stack(draw(st.integers(0, 3))),
        adapters=tuple(sorted(found.values(), key=adapter_order)),
        reads=reads,
        frozen=draw(st.none() | st.integers(0, layers)),
        heads=heads,
    )
