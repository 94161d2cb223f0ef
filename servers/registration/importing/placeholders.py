"""`${…}` in a configuration: a reference that a worker resolves, or a value that a person must enter.

`${X}`, `${env:X}` and `${X:-default}` name a variable, `${file:/path}` a file; `${input:id}` (VS Code) and the variables
of an editor, such as `${workspaceFolder}`, mean nothing on a server: their values are *needed*. `$${` is a literal `${`
and stays.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_ANY = re.compile(r"(?<!\$)\$\{([^{}]{0,500})\}")  # not $${, the escape
# opencode writes its references without the dollar sign.
_OPENCODE = re.compile(r"(?<![\${])\{((?:env|file):[^{}\s]{1,500})\}(?!\})")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
_FILE = re.compile(r"file:[/~].*")
# Visual Studio Code, *Variables reference*; Cursor supports the same ones.
_OF_AN_EDITOR = frozenset(
    {
        *("workspaceFolder", "workspaceRoot", "workspaceFolderBasename", "userHome", "pathSeparator", "execPath"),
        *("file", "fileDirname", "fileBasename", "cwd", "relativeFile", "lineNumber", "selectedText"),
    }
)


@dataclass(frozen=True)
class Placeholder:
    """`key` names the needed value; `reference` is the syntax for a worker's variable or file, if it is one."""

    key: str
    reference: str = ""
    drops_default: bool = False

    @property
    def is_variable(self) -> bool:
        named = self.reference == f"${{{self.key}}}" and not self.key.startswith("file:")
        return named and not self.drops_default

    @property
    def is_exported(self) -> bool:
        """Whether our own export writes this (see exporting.py); anything else in an export is literal text."""
        return self.key.startswith("input:") or bool(self.reference and not self.drops_default)


def placeholder(inner: str) -> Placeholder:
    if inner.startswith("input:"):
        return Placeholder(inner)
    if _FILE.fullmatch(inner):
        return Placeholder(inner, f"${{{inner}}}")
    found = _VARIABLE.fullmatch(inner)
    if found is None or inner in _OF_AN_EDITOR:
        return Placeholder(inner)
    return Placeholder(found[1], f"${{{found[1]}}}", bool(found[2]))


def in_one_spelling(text: str) -> str:
    """Normalize opencode's references by adding the dollar sign."""
    return _OPENCODE.sub(r"${\1}", text)


def parted(text: str) -> list[tuple[str, Placeholder | None]]:
    """The text in pieces: literal ones, and placeholders as written."""
    pieces: list[tuple[str, Placeholder | None]] = []
    at = 0
    for found in _ANY.finditer(text):
        pieces += [(text[at : found.start()], None), (found[0], placeholder(found[1]))]
        at = found.end()
    return [*pieces, (text[at:], None)]


def replaced(text: str, put: Callable[[Placeholder], str | None]) -> str:
    """`text` with each placeholder replaced by what `put` returns; None leaves it unchanged."""

    def one(match: re.Match[str]) -> str:
        words = put(placeholder(match[1]))
        return match[0] if words is None else words

    return _ANY.sub(one, text)
