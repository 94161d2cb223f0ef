"""Local references of one schema document: by JSON pointer (RFC 6901), anchor, or the document's own `$id`. Nothing is
fetched.

Source: JSON Schema 2020-12 *Core* 8.2, draft-07 8.2.3 (`"$id": "#name"`).
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote

from servers.schemas.pointer import segments, unescape
from servers.schemas.values import children
from servers.schemas.vocabulary import ANCHORS

#: the longest chain of $ref and allOf that leads to one value
MAX_CHAIN: Final = 16


class Unresolvable(Exception):
    """No schema of this document; the sentence says why."""


class References:
    """`spend` is called for each part that a search looks at; it may raise what its caller catches."""

    def __init__(self, root: Any, spend: Callable[[], None]) -> None:
        self._root, self._spend = root, spend
        self._anchors: dict[str, Any] | None = None

    def target(self, ref: Any) -> Any:
        """What a `$ref` or `$dynamicRef` leads to. Raises Unresolvable."""
        if not isinstance(ref, str):
            raise Unresolvable("The schema is not valid here: “$ref” must be text.")
        base, _, fragment = ref.partition("#")
        if base and base != self._base():
            raise Unresolvable("This part refers to another document, which is never fetched.")
        if not fragment:
            return self._root
        return self._walk(unquote(fragment)) if fragment.startswith("/") else self._anchor(unquote(fragment))

    def _base(self) -> str:
        base = self._root.get("$id") if isinstance(self._root, dict) else None
        return base.rstrip("#") if isinstance(base, str) else ""

    def _walk(self, pointer: str) -> Any:
        target = self._root
        for segment in segments(pointer):
            self._spend()
            key = unescape(segment)
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(target):
                target = target[int(key[:9])]
            else:
                raise _missing()
        return target

    def _anchor(self, name: str) -> Any:
        if self._anchors is None:
            self._anchors = {}
            waiting = [self._root]
            while waiting:
                self._spend()
                part = waiting.pop()
                if isinstance(part, dict):
                    for anchor in _anchors_of(part):
                        self._anchors.setdefault(anchor, part)
                waiting.extend(children(part))
        if name not in self._anchors:
            raise _missing()
        return self._anchors[name]


def _anchors_of(schema: dict[str, Any]) -> list[str]:
    own = schema.get("$id")
    names = [schema.get(key) for key in ANCHORS] + [own[1:] if isinstance(own, str) and own[:1] == "#" else None]
    return [name for name in names if isinstance(name, str) and name]


def _missing() -> Unresolvable:
    return Unresolvable("This part refers to a definition that the schema does not have.")
