"""For mkdocstrings: our docstrings say `Example:`, which it knows as `Examples:`."""

from __future__ import annotations

from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Shows examples as code."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
