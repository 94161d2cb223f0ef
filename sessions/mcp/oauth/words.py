"""An authorization server's own words about a refusal, safe to show: bounded, printable, without our own values."""

import re
from collections.abc import Iterable

from ..core.refusals import IT_SAYS
from .exchange import HttpResponse

_CODE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,64}\Z")
_SHOWN = 300
#: shorter values occur in ordinary sentences by chance
_WORTH_HIDING = 6


def error_code(value: object) -> str:
    """An error code of RFC 6749; empty for anything else."""
    return value if isinstance(value, str) and _CODE.match(value) else ""


def server_said(response: HttpResponse, sent: Iterable[str] = ()) -> str:
    said = response.json() or {}
    return shown(error_code(said.get("error")), said.get("error_description"), sent) or f"HTTP {response.status}."


def shown(code: str, description: object, sent: Iterable[str] = ()) -> str:
    """One line for the user. `sent`: values to hide if the server repeats them."""
    words = " ".join(description.split()) if isinstance(description, str) else ""
    for value in sent:
        if len(value) >= _WORTH_HIDING:
            words, code = words.replace(value, "…"), code.replace(value, "…")
    words = "".join(one for one in words if one.isprintable())[:_SHOWN]
    if not code:
        return f"{IT_SAYS}{words}" if words else ""
    return f"{IT_SAYS}{code} ({words})" if words else f"{IT_SAYS}{code}."
