"""A JSON value as nested `<details>`: readable and searchable without script, bounded whatever a server sends."""

import json
from collections.abc import Iterator
from typing import Any

from servers.kit.visible import visible_html

CHILDREN = 200  # of one list or object before "show more"
NODES = 5_000  # of the whole tree
STRING = 400  # characters before "show all"
STRING_MAX = 65_536
OPEN_DEPTH = 2
DEPTH = 64


class Tree:
    """One rendering; counts down the nodes that may still be written."""

    def __init__(self) -> None:
        self.left = NODES

    def render(self, value: Any, *, name: str | None = None, depth: int = 0, comma: bool = False) -> str:
        self.left -= 1
        if isinstance(value, dict | list) and value:
            return self._branch(value, _key(name), depth, comma)
        return f"<div>{_key(name)}{_leaf(value)}{',' if comma else ''}</div>"

    def _branch(self, value: dict[str, Any] | list[Any], key: str, depth: int, comma: bool) -> str:
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        count = _count(value)
        if depth >= DEPTH:
            return f'<div>{key}{opening}<span class="c"> {count}, nested too deep to show </span>{closing}</div>'
        is_open = " open" if depth < OPEN_DEPTH else ""
        summary = f'<summary>{key}{opening} <span class="c">{count}</span></summary>'
        inner = "".join(self._children(value, depth))
        tail = f'<div class="jv-end">{closing}{"," if comma else ""}</div>'
        return f'<details{is_open}>{summary}<div class="in1">{inner}</div>{tail}</details>'

    def _children(self, value: dict[str, Any] | list[Any], depth: int) -> Iterator[str]:
        items = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
        opened = 0
        for index, (name, item) in enumerate(items):
            if self.left <= 0:
                yield f'<div class="c">… {len(items) - index:,} more, not shown here: open the raw value</div>'
                break
            if index and index % CHILDREN == 0:
                yield f'<details class="jv-more"><summary>Show {len(items) - index:,} more</summary>'
                opened += 1
            yield self.render(item, name=name, depth=depth + 1, comma=index < len(items) - 1)
        yield "</details>" * opened


def render_json_tree(value: Any) -> str:
    return Tree().render(value)


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


def _quoted(text: str) -> str:
    """As JSON writes it, but with hidden characters left in, for the marker to name."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


def _count(value: dict[str, Any] | list[Any]) -> str:
    noun = "key" if isinstance(value, dict) else "item"
    return f"{len(value):,} {noun}{'' if len(value) == 1 else 's'}"
