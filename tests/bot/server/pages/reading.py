"""HTML as a reader meets it: what is said, what can be pressed, and what breaks the rules.

What lives here: a strict parser of our own pages. What does not: expectations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"meta", "link", "input", "br", "img"})
_DRAWN = frozenset({"svg", "path", "circle", "rect"})
_INLINE = frozenset({"bdi", "b", "code", "time", "a", "small", "span"})
_HOLDS_NO_BLOCK = frozenset({"p", "h1", "h2", "button", "a", "span", "bdi", "b", "label", "small", "code", "title"})
_BLOCKS = frozenset({"div", "p", "ul", "ol", "li", "dl", "dt", "dd", "form", "section", "header", "main", "footer", "h1", "h2"})


@dataclass
class Form:
    action: str
    method: str
    buttons: list[str] = field(default_factory=list)
    inputs: list[dict[str, str | None]] = field(default_factory=list)


class Read(HTMLParser):
    """One page, read whole; `faults` lists what a validator would say."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.forms: list[Form] = []
        self.links: dict[str, str] = {}
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._said: dict[str, list[str]] = {}
        if not html.startswith("<!doctype html>\n<html lang="):
            self.faults.append("no doctype or no language at the start")
        self.feed(html)
        self.close()
        self.faults += [f"<{tag}> stays open" for tag, _ in self._open]
        self._look_whole()

    @property
    def text(self) -> str:
        return self.said("body")

    def said(self, tag: str) -> str:
        """Return what stands in all elements of a name, with single spaces."""
        return " ".join("".join(self._said.get(tag, ())).split())

    def meta(self, name: str, key: str = "name") -> str | None:
        return next(
            (attributes["content"] for tag, attributes in self.tags if tag == "meta" and attributes.get(key) == name), None
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if len(attributes) != len(attrs):
            self.faults.append(f"<{tag}> says an attribute twice")
        inside = [name for name, _ in self._open]
        if tag in _BLOCKS and any(name in _HOLDS_NO_BLOCK for name in inside):
            self.faults.append(f"<{tag}> within {inside}")
        if tag in {"a", "button"} and ({"a", "button"} & set(inside)):
            self.faults.append(f"<{tag}> within another")
        if tag == "form":
            self.forms.append(Form(attributes.get("action") or "", attributes.get("method") or "get"))
        if tag == "input":
            self.forms[-1].inputs.append(attributes)
        if tag not in _VOID and not (tag in _DRAWN and self.get_starttag_text().endswith("/>")):  # type: ignore[union-attr]
            self._open.append((tag, attributes))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _DRAWN:
            self.faults.append(f"<{tag}/> is no way to close in HTML")

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open[-1][0] != tag:
            self.faults.append(f"</{tag}> where {[name for name, _ in self._open]} is open")
            return
        self._open.pop()
        for name in [tag, *(name for name, _ in self._open)]:
            self._said.setdefault(name, []).append("" if tag in _INLINE else " ")

    def handle_data(self, data: str) -> None:
        inside = [name for name, _ in self._open]
        for name in dict.fromkeys(inside):
            self._said.setdefault(name, []).append(data)
        if not data.strip():
            return
        if "button" in inside:
            buttons = self.forms[-1].buttons
            if inside.count("button") and self._fresh_button():
                buttons.append("")
            buttons[-1] += data
        for outer, said in self._open:
            if outer == "a":
                address = said.get("href") or ""
                self.links[address] = self.links.get(address, "") + data

    def _fresh_button(self) -> bool:
        pressed = [attributes for tag, attributes in self.tags if tag == "button"][-1]
        fresh = "seen" not in pressed
        pressed["seen"] = None
        return fresh

    def _look_whole(self) -> None:
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        if len(set(ids)) != len(ids):
            self.faults.append(f"ids said twice: {ids}")
        for tag, attributes in self.tags:
            for name in ("for", "aria-labelledby", "aria-describedby"):
                self.faults += [f"{name} of <{tag}>: no {one}" for one in (attributes.get(name) or "").split() if one not in ids]
            self.faults += [f"<{tag}> has {name}" for name in attributes if name.startswith("on") or name == "style"]
        for single in ("h1", "main", "title"):
            count = sum(1 for name, _ in self.tags if name == single)
            if count != 1:
                self.faults.append(f"{count} of <{single}>")
        self.faults += [f"<{tag}>" for tag, _ in self.tags if tag in {"script", "style", "iframe", "object", "base", "img"}]
