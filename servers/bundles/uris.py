"""The URIs of resources in a bundle, as pure functions. A URI must mean one thing forever, so all are rewritten, not
only those that clash, and each rewrite can be reversed.

`s://rest` becomes `s://<alias>.mcp/rest`: the scheme stays, since clients go by it (`ui://`, `file://`). Anything else
becomes `urn:mcp:<alias>:` followed by the whole URI. `https:` is global and stays.
"""

import re
from typing import Final

_HIERARCHICAL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)\Z", re.DOTALL)
_GLOBAL: Final = re.compile(r"https:", re.IGNORECASE)
_OURS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([a-z][a-z0-9-]{1,11})\.mcp/(.*)\Z", re.DOTALL)
_OPAQUE: Final = re.compile(r"urn:mcp:([a-z][a-z0-9-]{1,11}):(.*)\Z", re.DOTALL)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_WITH_HOST: Final = re.compile(
    r"https:/*(?:[^/?#\s]*@)?(?:\[[^\]/?#\s]+\]|[^/?#\s:@]+)(?::\d*)?(?:[/?#]|\Z)", re.IGNORECASE
)
NO_HOST: Final = "Its URI has no host. Clients would reject the whole list."
HIDDEN: Final = "Its scheme is part of the template, so it cannot be rewritten."


def is_global(uri: str) -> bool:
    return bool(_GLOBAL.match(uri))


def is_readable(uri: str) -> bool:
    """Whether every client accepts it as the URI of a resource in a bundle. A rewritten URI has the bundle's host."""
    return not is_global(uri) or _WITH_HOST.match(uri) is not None


def exposed_uri(alias: str, uri: str) -> str:
    if is_global(uri):
        return uri
    if (found := _HIERARCHICAL.match(uri)) is not None:
        return f"{found[1]}://{alias}.mcp/{found[2]}"
    return f"urn:mcp:{alias}:{uri}"


def inward(uri: str) -> tuple[str, str] | None:
    """The alias and the original URI; None if it is not the URI of a bundle."""
    if (found := _OURS.match(uri)) is not None:
        return found[2], f"{found[1]}://{found[3]}"
    if (found := _OPAQUE.match(uri)) is not None:
        return found[1], found[2]
    return None


def template_outward(alias: str, template: str) -> str | None:
    """Rewrites only the part before the first variable. None if that is impossible: the template is then hidden."""
    return exposed_uri(alias, template) if _SCHEME.match(literal(template)) else None


def literal(template: str) -> str:
    """What every URI of a template begins with."""
    return template.partition("{")[0]


def fits(template: str, uri: str) -> bool:
    """Whether the URI could be of this template (RFC 6570): each variable may be anything, or nothing."""
    if not uri.startswith(literal(template)):  # most do not: a server has many templates
        return False
    parts = re.split(r"\{[^{}]*\}", template)
    at = len(parts[0])
    if not uri.startswith(parts[0]):
        return False
    if len(parts) == 1:
        return uri == template
    for part in parts[1:-1]:
        at = uri.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return uri.endswith(parts[-1]) and len(uri) - len(parts[-1]) >= at
