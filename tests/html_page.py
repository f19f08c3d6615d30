"""A page as a reader's browser takes it apart."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Tags in balance, the addresses that are asked for, and the visible words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asked: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.parts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    @property
    def words(self) -> str:
        """As they are read: a line break in the source is a space."""
        return " ".join(" ".join(self.parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "wbr"):
            self.open.append(tag)
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
                (self.links if (value or "").startswith("#") else self.asked).append(value or "")
            if key == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.parts.append(data)
