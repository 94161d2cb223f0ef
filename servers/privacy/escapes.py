"""JSON that somebody else wrote, for a search in its text."""

import json
import re
from typing import Final

#: those that JSON does not need, with which a server may write a secret in another form
_ESCAPE: Final = re.compile(
    r"\\(?:(/)|(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|.)", re.DOTALL
)


def unescaped(text: str) -> str:
    """`\\/` and `\\uXXXX` as the characters they mean, if these can stand in a JSON string; all others stay."""
    return _ESCAPE.sub(_unescaped, text) if "\\/" in text or "\\u" in text else text


def _unescaped(found: "re.Match[str]") -> str:
    slash, pair, code = found.groups()
    if slash:
        return "/"
    if not (pair or code):
        return found[0]
    char = str(json.loads(f'"{found[0]}"'))
    return char if char.isprintable() and char not in '"\\' else found[0]
