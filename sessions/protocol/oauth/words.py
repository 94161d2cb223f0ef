"""What an authorization server says about a refusal, fit to be shown: bounded, printable, without what we sent."""

import re
from collections.abc import Iterable

from .exchange import HttpResponse

_CODE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,64}\Z")
_SHOWN = 300
#: shorter values occur in every sentence by chance
_WORTH_HIDING = 6


def error_code(value: object) -> str:
    """An error code of RFC 6749; empty when it is none."""
    return value if isinstance(value, str) and _CODE.match(value) else ""


def server_said(response: HttpResponse, sent: Iterable[str] = ()) -> str:
    said = response.json() or {}
    return shown(error_code(said.get("error")), said.get("error_description"), sent) or f"HTTP {response.status}."


def shown(code: str, description: object, sent: Iterable[str] = ()) -> str:
    """One line. `sent`: values that may not be shown, should the server repeat them."""
    words = " ".join(description.split()) if isinstance(description, str) else ""
    for value in sent:
        if len(value) >= _WORTH_HIDING:
            words, code = words.replace(value, "…"), code.replace(value, "…")
    words = "".join(one for one in words if one.isprintable())[:_SHOWN]
    if not code:
        return f"It says: {words}" if words else ""
    return f"It says: {code} ({words})" if words else f"It says: {code}."
