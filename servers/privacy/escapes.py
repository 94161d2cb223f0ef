"""JSON text of a server, prepared for a search."""

import json
import re
from typing import Final

#: escapes that JSON does not need, and those that a server can write in more than one way
_ESCAPE: Final = re.compile(
    r"\\(?:(/)|(u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|.)", re.DOTALL
)


def unescaped(text: str) -> str:
    """The JSON text with as few escapes as possible, each in the form that our own writers use: a secret in it then
    looks the same as in what they wrote."""
    return _ESCAPE.sub(_unescaped, text) if "\\/" in text or "\\u" in text else text


def _unescaped(found: "re.Match[str]") -> str:
    slash, pair, code = found.groups()
    if slash:
        return "/"
    if not (pair or code) or (code and 0xD800 <= int(code, 16) <= 0xDFFF):  # half a pair is not a character
        return found[0]
    return json.dumps(json.loads(f'"{found[0]}"'), ensure_ascii=False)[1:-1]
