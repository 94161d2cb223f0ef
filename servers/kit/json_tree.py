"""A JSON value as nested `<details>`: readable without script, bounded whatever a server sends.

Each node says its key (`data-k`, as JSON writes it, in ASCII) or its position (`data-i`), from which js/json-view.js
makes the path that it copies.
"""

import json
from collections.abc import Iterator
from html import escape
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from servers.kit.visible import visible_html
from servers.numbers import whole_number
from servers.schemas.pointer import escape as escape_segment
from servers.schemas.pointer import segments, unescape

CHILDREN = 200  # of one list or object before "show more"
NODES = 5_000  # of the whole tree
STRING = 400  # characters before "show all"
STRING_MAX = 65_536
OPEN_DEPTH = 2
DEPTH = 64
PREVIEW = 3  # members that a closed node names
PREVIEW_STRING = 24  # characters of each
_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


class Tree:
    """One rendering; counts down the nodes that may still be written. `cut`: some were left out. `more_url` answers with
    children of a node: `?at=` its JSON Pointer, `&from=` the first of them."""

    def __init__(self, more_url: str = "", nodes: int = NODES) -> None:
        self.left = nodes
        self.cut = False
        self._more_url = more_url

    def render(
        self,
        value: Any,
        *,
        place: str = "",
        name: str | None = None,
        depth: int = 0,
        comma: bool = False,
        pointer: str = "",
    ) -> str:
        """`place`: the attribute that says where the value is in the one around it."""
        self.left -= 1
        if isinstance(value, dict | list) and value:
            return self._branch(value, place, _key(name), depth, comma, pointer)
        return f"<div{place}>{_key(name)}{_leaf(value)}{',' if comma else ''}</div>"

    def page(self, value: dict[str, Any] | list[Any], pointer: str, start: int) -> str:
        """The children of the node at `pointer` from `start` on, for `more_url`."""
        depth = max(OPEN_DEPTH, pointer.count("/"))
        return "".join(self._children(value, depth, pointer, start, start + CHILDREN))

    def _branch(
        self, value: dict[str, Any] | list[Any], place: str, key: str, depth: int, comma: bool, pointer: str
    ) -> str:
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        noun = "key" if isinstance(value, dict) else "item"
        count = f"{len(value):,} {noun}{'' if len(value) == 1 else 's'}"
        if depth >= DEPTH:
            self.cut = True
            return (
                f'<div{place}>{key}{opening}<span class="c"> {count}, nested too deeply to show </span>{closing}</div>'
            )
        is_open = " open" if depth < OPEN_DEPTH else ""
        summary = (
            f'<summary>{key}<span class="jv-open">{opening} <span class="c">{count}</span></span>'
            f'<span class="jv-closed">{_preview(value)}</span></summary>'
        )
        inner = "".join(self._children(value, depth, pointer))
        tail = f'<div class="jv-end">{closing}{"," if comma else ""}</div>'
        return f'<details{place}{is_open}>{summary}<div class="in1">{inner}</div>{tail}</details>'

    def _children(
        self, value: dict[str, Any] | list[Any], depth: int, pointer: str, start: int = 0, end: int | None = None
    ) -> Iterator[str]:
        items = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
        opened = 0
        for index, (name, item) in enumerate(items[start:], start):
            if self.left <= 0 or index == end:
                self.cut = True
                yield self._more(len(items) - index, pointer, index)
                break
            if index > start and (index - start) % CHILDREN == 0:
                yield f'<details class="jv-more"><summary>Show {len(items) - index:,} more</summary>'
                opened += 1
            place = f' data-i="{index}"' if name is None else f' data-k="{escape(json.dumps(name)[1:-1])}"'
            below = f"{pointer}/{index if name is None else escape_segment(name)}" if self._more_url else ""
            comma = index < len(items) - 1
            yield self.render(item, place=place, name=name, depth=depth + 1, comma=comma, pointer=below)
        yield "</details>" * opened

    def _more(self, count: int, pointer: str, start: int) -> str:
        if not self._more_url:
            return f'<div class="c">… {count:,} more, not shown here: open the raw value</div>'
        query = urlencode({"at": pointer.encode("utf-8", "surrogatepass"), "from": start})
        return (
            f'<div class="jv-page"><button class="link-btn" type="button" '
            f'hx-get="{escape(f"{self._more_url}?{query}")}" hx-target="closest .jv-page" hx-swap="outerHTML">'
            f"Load {min(count, CHILDREN):,} of {count:,} more</button></div>"
        )


def value_at(value: Any, pointer: str) -> Any:
    """Raises LookupError if there is nothing."""
    for segment in segments(pointer):
        name = unescape(segment)
        if isinstance(value, list):
            number = whole_number(name)
            if number is None:
                raise LookupError(pointer)
            value = value[number]
        elif isinstance(value, dict):
            value = value[name]
        else:
            raise LookupError(pointer)
    return value


def _key(name: str | None) -> str:
    return "" if name is None else f'<span class="k">{visible_html(_quoted(name))}</span>: '


def _leaf(value: Any) -> str:
    match value:
        case bool() | None:
            return f'<span class="bo">{json.dumps(value)}</span>'
        case int() | float():
            return f'<span class="nu">{json.dumps(value)}</span>'
        case str():
            return _string(value)
        case dict():
            return "{}"
        case list():
            return "[]"
        case _:
            return _string(str(value))


def _string(text: str) -> str:
    if len(text) <= STRING:
        return f'<span class="s">{visible_html(_quoted(text))}</span>'
    start = visible_html(_quoted(text[:STRING])[:-1])
    rest = f" of the first {STRING_MAX:,}" if len(text) > STRING_MAX else ""
    return (
        f'<details class="jv-s"><summary><span class="s">{start}…</span> '
        f'<span class="c">show all{rest}, {len(text):,} characters</span></summary>'
        f'<span class="s">{visible_html(text[:STRING_MAX])}</span></details>'
    )


def _preview(value: dict[str, Any] | list[Any]) -> str:
    """`{id: 3, name: "x", …4 more}`: what a closed node holds."""
    if isinstance(value, dict):
        first = [f"{name[:PREVIEW_STRING]}: {_short(item)}" for name, item in islice(value.items(), PREVIEW)]
    else:
        first = [_short(item) for item in value[:PREVIEW]]
    words = ", ".join(first + ([f"…{len(value) - PREVIEW:,} more"] if len(value) > PREVIEW else []))
    return visible_html(f"{{{words}}}" if isinstance(value, dict) else f"[{words}]")


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    if isinstance(value, str):
        return _quoted(value) if len(value) <= PREVIEW_STRING else f'{_quoted(value[:PREVIEW_STRING])[:-1]}…"'
    return json.dumps(value, default=str)[:PREVIEW_STRING]


def _quoted(text: str) -> str:
    """As JSON writes it, but with hidden characters left in, for the marker to name."""
    for character, escaped in _ESCAPES:
        text = text.replace(character, escaped)
    return f'"{text}"'
