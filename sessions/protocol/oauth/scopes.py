"""Which scopes to ask for (MCP *Scope Selection Strategy*, *Step-Up Authorization Flow*)."""

import re
from collections.abc import Iterable

OFFLINE = "offline_access"
#: RFC 6749 section 3.3
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}\Z")
_MOST = 200


def scopes_in(text: object) -> tuple[str, ...]:
    """The scopes of a parameter `scope`, each once."""
    return usable(text.split(" ")) if isinstance(text, str) else ()


def scopes_of(listed: object) -> tuple[str, ...]:
    """The scopes of a member `scopes_supported`."""
    return usable(listed) if isinstance(listed, list) else ()


def usable(scopes: Iterable[object]) -> tuple[str, ...]:
    known = dict.fromkeys(one for one in scopes if isinstance(one, str) and _SCOPE.match(one))
    return tuple(known)[:_MOST]


def wanted(
    challenged: tuple[str, ...], chosen: tuple[str, ...], listed: tuple[str, ...], before: tuple[str, ...]
) -> tuple[str, ...]:
    """What the challenge names; else what the operator chose, else what the server's metadata lists, else nothing.
    What was asked for `before` is kept, so that no permission is lost to a step-up."""
    return usable((*before, *(challenged or chosen or listed)))


def with_offline(scopes: tuple[str, ...], listed_by_issuer: tuple[str, ...]) -> tuple[str, ...]:
    """Only an authorization server that lists it is asked for a refresh token in this way (OpenID Connect Core 11)."""
    return usable((*scopes, OFFLINE)) if OFFLINE in listed_by_issuer else tuple(s for s in scopes if s != OFFLINE)
