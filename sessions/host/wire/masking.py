"""Masks HTTP headers and URLs: what is a credential by its name, beside the values that the redactor knows."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sessions.host.answer_redaction import MASK

#: of one head
HEADERS: Final = 64
VALUE_CHARS: Final = 2_000
URL_CHARS: Final = 4_000
_CREDENTIAL: Final = re.compile(
    r"auth|cookie|token|secret|passw|credential|signature|session|key|dpop|nonce|csrf|xsrf|assertion|jwt|saml",
    re.IGNORECASE,
)
#: named like credentials, and none
_HARMLESS: Final = frozenset(
    {
        "www-authenticate",
        "proxy-authenticate",
        "sec-websocket-key",
        "idempotency-key",
        "access-control-allow-credentials",
    }
)
#: their values are or contain URLs
_URLS: Final = frozenset({"location", "content-location", "link", "refresh", "referer", "origin"})
#: they repeat arguments of the call (2026-07-28, *Custom headers from tool parameters*), which the body has too
_ARGUMENT: Final = "mcp-param-"
_SCHEME: Final = re.compile(r"(?i)\b(bearer|basic|digest|negotiate|dpop|token)(\s+)[A-Za-z0-9._~+/=-]{8,}")
_PARAMETER: Final = re.compile(r'(?i)\b(nonce|opaque|token)(\s*=\s*)("[^"]*"|[^\s,]+)')
_QUERY_VALUE: Final = re.compile(r"([?&;][^=&;#\s<>\"]*=)[^&;#\s<>\"]+")
_USERINFO: Final = re.compile(r"(?<=://)[^/\s@?#]+@")


def masked_url(url: str) -> str:
    """Without user information, fragment and the values of its query, of which any may be a secret."""
    return _USERINFO.sub(f"{MASK}@", _QUERY_VALUE.sub(rf"\1{MASK}", url.partition("#")[0]))[:URL_CHARS]


def masked_headers(headers: Iterable[tuple[str, str]], redacted: Callable[[str], str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in headers:
        if len(found) == HEADERS:
            found.append(("…", "more headers than are kept"))
            break
        found.append((redacted(name), _masked(name.lower(), value, redacted)))
    return found


def _masked(name: str, value: str, redacted: Callable[[str], str]) -> str:
    if name.startswith(_ARGUMENT) or (name not in _HARMLESS and _CREDENTIAL.search(name)):
        return MASK
    if name in _URLS:
        value = masked_url(value)
    elif name.endswith("-authenticate"):
        value = _PARAMETER.sub(rf"\1\2{MASK}", value)
    return redacted(_SCHEME.sub(rf"\1\2{MASK}", value) if name not in _HARMLESS else value)[:VALUE_CHARS]


def headers_text(sent: Sequence[tuple[str, str]], received: Sequence[tuple[str, str]] = ()) -> str:
    """As it is stored in WireMessage.headers."""
    return json.dumps({"sent": sent, "received": received}, ensure_ascii=False)
