"""Chooses the scopes to request (MCP *Scope Selection Strategy*, *Step-Up Authorization Flow*)."""

import re
from collections.abc import Iterable

OFFLINE = "offline_access"
#: RFC 6749 section 3.3
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}\Z")
_MOST = 200


def scopes_in(text: object) -> tuple[str, ...]:
    """The scopes of a `scope` parameter, without duplicates."""
    return usable(text.split(" ")) if isinstance(text, str) else ()


def scopes_of(listed: object) -> tuple[str, ...]:
    """The scopes of a `scopes_supported` member."""
    return usable(listed) if isinstance(listed, list) else ()


def usable(scopes: Iterable[object]) -> tuple[str, ...]:
    known = dict.fromkeys(one for one in scopes if isinstance(one, str) and _SCOPE.match(one))
    return tuple(known)[:_MOST]


def scopes_to_request(
    challenged: tuple[str, ...], chosen: tuple[str, ...], listed: tuple[str, ...], before: tuple[str, ...]
) -> tuple[str, ...]:
    """The scopes of the challenge, or else the operator's choice, or else those in the server's metadata, or else none.
    Scopes requested `before` are kept, so that a step-up loses no permission."""
    return usable((*before, *(challenged or chosen or listed)))


def with_offline(scopes: tuple[str, ...], listed_by_issuer: tuple[str, ...]) -> tuple[str, ...]:
    """Request offline_access (a refresh token) only if the authorization server lists it (OpenID Connect Core 11)."""
    return usable((*scopes, OFFLINE)) if OFFLINE in listed_by_issuer else tuple(s for s in scopes if s != OFFLINE)
