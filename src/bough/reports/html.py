"""HTML and SVG by function calls: text is escaped unless it is Markup, so nothing slips through."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = {"br", "input", "meta", "link", "circle", "rect", "line", "path", "image", "polyline"}


class Markup(str):
    """A string that is markup already."""

    __slots__ = ()


Part = str | Markup | None | Iterable["Part"]


def element(name: str, /, *parts: Part, **attributes: object) -> Markup:
    """`element("td", "a < b", class_="low")`; None and False leave an attribute out.

    Underscores in attribute names stand for hyphens; one at the end is dropped.
    """
    told = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        if isinstance(value, float):
            value = f"{value:.6g}"
        told.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    if name in VOID and not parts:
        return Markup(f"<{name}{''.join(told)}{'/' if name not in ('meta', 'link') else ''}>")
    return Markup(f"<{name}{''.join(told)}>{join(parts)}</{name}>")


def join(parts: Part) -> Markup:
    """Parts one after the other."""
    if parts is None:
        return Markup("")
    if isinstance(parts, Markup):
        return parts
    if isinstance(parts, str):
        return Markup(escape(parts, quote=False))
    return Markup("".join(join(part) for part in parts))


def figure(caption: Part, plot: Part, **attributes: object) -> Markup:
    return element("figure", element("figcaption", caption), plot, class_="card", **attributes)


def sortable(heads: Iterable[str], rows: Part, kind: str, **attributes: object) -> Markup:
    """A table that sorts itself by the column whose heading is clicked."""
    head = element("tr", [element("th", text) for text in heads])
    parts = (element("thead", head), element("tbody", rows))
    return element("table", parts, class_=f"{kind} sortable", **attributes)
