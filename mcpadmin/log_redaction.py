"""Removes secrets from text: those alive in this process in every usual encoding, and values with a telling name.

Standard library and `servers.secret` only. The search costs one dictionary look-up a character, however many secrets
are alive (a regular expression of all variants grows with their number).
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from servers.secret import MASK, MIN_LENGTH, live_values, live_version, variants

_HEAD = MIN_LENGTH

_NAMES = r"authorization|cookie|set-cookie|token|secret|password|passwd|passphrase|api[_-]?key|private[_-]?key|credentials?|csrf[a-z]*|sessionid"
#: every text that _NAMED matches contains one of them
_WORDS = (
    "authorization",
    "cookie",
    "token",
    "secret",
    "passw",
    "passphrase",
    "api",
    "private",
    "credential",
    "csrf",
    "sessionid",
)
_SECRET_NAME = re.compile(rf"(?:^|[^a-z])(?:{_NAMES})(?:$|[^a-z])", re.IGNORECASE)
_NAMED = re.compile(
    rf"(?i)((?<![A-Za-z])(?:[\w-]*[_-])?(?:{_NAMES})[\"']?\s*[:=]\s*)((?:bearer|basic|digest|token)\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+@")
_ONE_TIME_LINK = re.compile(r"(/(?:setup|link)/)[^/\s\"']+")


@lru_cache(maxsize=1_024)
def is_secret_name(name: str) -> bool:
    """camelCase, snake_case and header names alike: `apiKey`, `client_secret`, `X-Api-Key`, `Authorization`."""
    return _SECRET_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None


def redact(text: str) -> str:
    """`text` without live secrets, values beside a name that suggests a secret, passwords in URLs and the tokens of one-time links."""
    return mask_named(_live_needles(live_version()).mask(text))


def mask_named(text: str) -> str:
    """Each pattern is only tried on a text that contains part of it: these tests cost a tenth of a search."""
    lower, plain = (
        text.lower(),
        text.isascii(),
    )  # beyond ASCII, a pattern treats more letters as equal than `lower` does
    if not plain or any(word in lower for word in _WORDS):
        text = _NAMED.sub(lambda found: f"{found[1]}{MASK}", text)
    if not plain or "bearer" in lower or "basic" in lower:
        text = _BEARER.sub(lambda found: f"{found[1]} {MASK}", text)
    if "://" in text:
        text = _USERINFO.sub(rf"\1:{MASK}@", text)
    return _ONE_TIME_LINK.sub(rf"\1{MASK}", text) if "/setup/" in text or "/link/" in text else text


class SecretPatterns:
    def __init__(self, values: Iterable[str]) -> None:
        self._by_head: dict[str, list[str]] = {}
        forms = {form for value in values if len(value) >= MIN_LENGTH for form in variants(value)}
        for form in sorted(forms, key=len, reverse=True):
            self._by_head.setdefault(form[:_HEAD], []).append(form)

    def mask(self, text: str) -> str:
        if not self._by_head:
            return text
        out: list[str] = []
        done = at = 0
        by_head, last = self._by_head, len(text) - _HEAD
        while at <= last:
            forms = by_head.get(text[at : at + _HEAD])
            if forms and (found := next((form for form in forms if text.startswith(form, at)), None)):
                out += [text[done:at], MASK]
                done = at = at + len(found)
            else:
                at += 1
        return "".join([*out, text[done:]])


@lru_cache(maxsize=1)
def _live_needles(_version: object) -> SecretPatterns:
    """Cached: most lines are written between two changes of the set of live secrets."""
    return _needles(frozenset(live_values()))


@lru_cache(maxsize=2)
def _needles(values: frozenset[str]) -> SecretPatterns:
    return SecretPatterns(values)
