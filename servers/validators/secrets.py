"""What looks like a credential by name, shape or preceding option. Heuristics: a false positive only seals a value."""

import re
from collections.abc import Sequence

from servers.validators.references import references, without_references
from servers.validators.values import looks_secret

_MIN_LENGTH = 20
# Shapes that their issuers document, a JSON Web Token (RFC 7519), schemes of RFC 7235, a URL with a password (RFC 3986).
_KNOWN = re.compile(
    r"(?:gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|sk_test_|rk_live_|pk_live_|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|hf_"
    r"|npm_|pypi-|dop_v1_|shpat_|figd_|lin_api_|ntn_|secret_|sntry[su]_|eyJ[A-Za-z0-9_-]+\.)[A-Za-z0-9._=+/-]{6,}"
)
_SCHEME = re.compile(r"\b(?:bearer|basic|token|apikey)\s+[^\s$]", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/?#\s@]*:[^/?#\s@]+@")
_OPAQUE = re.compile(r"[A-Za-z0-9_+/=.-]+")
_OPTION = re.compile(r"--?[A-Za-z]")


def looks_like_token(text: str) -> bool:
    return bool(_KNOWN.search(text) or _SCHEME.search(text) or _PASSWORD_IN_URL.search(text) or _opaque(text.strip()))


def _opaque(text: str) -> bool:
    """Whether it is a long word of letters and digits that is not a path, a name with a version, or a host."""
    if len(text) < _MIN_LENGTH or not _OPAQUE.fullmatch(text) or text.startswith((".", "/")):
        return False
    longest = max(re.split(r"[/.=_-]", text), key=len)
    return len(longest) >= _MIN_LENGTH - 4 and any(c.isdigit() for c in longest) and any(c.isalpha() for c in longest)


def holds_secret(name: str, text: str) -> bool:
    """Whether a header or variable is sealed even if it was not marked secret."""
    return looks_secret(name) or looks_like_token(text)


def secret_arguments(arguments: Sequence[str]) -> set[int]:
    """Positions of arguments that look like secrets: `--token x`, `--api-key=x`, `-e NAME=x`, `--header "Authorization: x"`."""
    found = set()
    for index, argument in enumerate(arguments):
        before = arguments[index - 1] if index else ""
        if references(argument):  # the referenced value is not stored here; the text around it is
            found |= {index} if looks_like_token(without_references(argument)) else set()
            continue
        named = _names_secret(before) and not _OPTION.match(argument)
        if named or looks_like_token(argument) or _assigns_secret(argument):
            found.add(index)
    return found


def _names_secret(option: str) -> bool:
    return bool(_OPTION.match(option)) and "=" not in option and looks_secret(option)


def _assigns_secret(argument: str) -> bool:
    name, mark, value = re.match(r"([^=:\s]*)([=:]?)(.*)", argument, re.DOTALL).groups()  # type: ignore[union-attr]  # matches all
    return bool(mark and value.strip() and looks_secret(name) and "//" not in value[:2])
