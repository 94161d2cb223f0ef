"""Masks HTTP headers and URLs: whatever is a credential by name, in addition to the values that the redactor knows."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final

from sessions.host.answer_redaction import MASK, dumped

#: headers of one message
HEADERS: Final = 64
VALUE_CHARS: Final = 2_000
URL_CHARS: Final = 4_000
_CREDENTIAL: Final = re.compile(
    r"auth|cookie|token|secret|passw|credential|signature|session|key|dpop|nonce|csrf|xsrf|assertion|jwt|saml",
    re.IGNORECASE,
)
#: named like credentials, but harmless
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
#: a name also ends at a question mark: with thousands of them, each match attempt would otherwise read the rest again
_QUERY_VALUE: Final = re.compile(r"([?&;][^=&;?#\s<>\"]*=)[^&;#\s<>\"]+")
_USERINFO: Final = re.compile(r"(?<=://)[^/\s@?#]+@")


def masked_url(url: str) -> str:
    """The URL without user information, fragment and query values, any of which may be a secret."""
    masked = url.partition("#")[0]
    if "=" in masked:
        masked = _QUERY_VALUE.sub(rf"\1{MASK}", masked)
    return (_USERINFO.sub(f"{MASK}@", masked) if "@" in masked else masked)[:URL_CHARS]


def masked_headers(
    headers: Iterable[tuple[str, str]], masker: Callable[[Iterable[str]], Callable[[str], str]]
) -> list[tuple[str, str]]:
    """`masker` takes texts and returns a function that masks what the redactor knows in them."""
    kept = list(islice(headers, HEADERS + 1))
    found = [(name, _masked(name.lower(), value)) for name, value in kept[:HEADERS]]
    redacted = masker(chain.from_iterable(found))
    found = [(redacted(name), redacted(value)[:VALUE_CHARS]) for name, value in found]
    if len(kept) > HEADERS:
        found.append(("…", "more headers than are kept"))
    return found


def _masked(name: str, value: str) -> str:
    if _is_credential(name):
        return MASK
    if name in _URLS:
        value = masked_url(value)
    elif name.endswith("-authenticate"):
        value = _PARAMETER.sub(rf"\1\2{MASK}", value)
    if name in _HARMLESS or len(value.split(maxsplit=1)) < 2:
        return value
    return _SCHEME.sub(rf"\1\2{MASK}", value)


@lru_cache(500)
def _is_credential(name: str) -> bool:
    return name.startswith(_ARGUMENT) or (name not in _HARMLESS and _CREDENTIAL.search(name) is not None)


def headers_text(sent: Sequence[tuple[str, str]], received: Sequence[tuple[str, str]] = ()) -> str:
    """The headers as stored in WireMessage.headers."""
    return dumped({"sent": sent, "received": received})
