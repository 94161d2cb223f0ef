"""JSON pointers (RFC 6901), form paths, and the names of form fields.

A form path is a JSON pointer with two more kinds of segment, which no pointer can contain because `~` is always
followed by 0 or 1 there: `~kN` is row N of an object's free keys, `~bN` the inside of branch N of a union. Characters
that a browser changes in a field's name (line breaks, NUL) are written `~xHEX;`.
A field name is `<prefix>[.<part>]:<form path>`; the colon and the fixed prefix distinguish it from every other name on
the page (`csrfmiddlewaretoken`, `_op`).
"""

import re
from dataclasses import dataclass, replace

PREFIX = "arg"


def escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def unescape(segment: str) -> str:
    return segment.replace("~1", "/").replace("~0", "~")


_UNSAFE = re.compile("[\0-\x1f\x7f\ud800-\udfff]")


def _form_escape(key: str) -> str:
    return _UNSAFE.sub(lambda found: f"~x{ord(found[0]):x};", escape(key))


def join(parts: list[str | int]) -> str:
    return "".join(f"/{escape(str(part))}" for part in parts)


def segments(path: str) -> list[str]:
    """The still escaped segments of a pointer; empty for the root."""
    return path.split("/")[1:] if path else []


@dataclass(frozen=True)
class NodePlace:
    """The location of a node: its form path, the pointer to its value, its nesting depth."""

    path: str = ""
    pointer: str = ""
    depth: int = 0
    key: str = ""

    def property(self, key: str) -> "NodePlace":
        return NodePlace(f"{self.path}/{_form_escape(key)}", f"{self.pointer}/{escape(key)}", self.depth + 1, key)

    def item(self, index: int) -> "NodePlace":
        return NodePlace(f"{self.path}/{index}", f"{self.pointer}/{index}", self.depth + 1)

    def row(self, index: int, key: str) -> "NodePlace":
        return NodePlace(f"{self.path}/~k{index}", f"{self.pointer}/{escape(key)}", self.depth + 1, key)

    def branch(self, index: int) -> "NodePlace":
        return replace(self, path=f"{self.path}/~b{index}", depth=self.depth + 1)


def name(prefix: str, path: str, part: str = "") -> str:
    return f"{prefix}.{part}:{path}" if part else f"{prefix}:{path}"
