"""`bough`, but with a tokenizer that panics at certain texts: to see what becomes of the server.

python -m tests.serve.attacked serve RUN
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bough.cli.main import main
from bough.inference import model
from bough.inference.answers import Answer

CURSE = "abracadabra"


class PanicException(BaseException):
    """As pyo3 raises it, which is no Exception."""


def _cursed(
    self: model.Model, asked: Iterable[tuple[model.Text, tuple[str, ...]] | None]
) -> Iterator[dict[str, Answer]]:
    chosen = list(asked)
    if any(CURSE in str(query) for query in chosen):
        raise PanicException("index out of bounds")
    return _answer(self, chosen)


_answer = model.Model.answer

if __name__ == "__main__":
    model.Model.answer = _cursed  # type: ignore[method-assign]
    main()
