"""Takes secrets out of text: those alive in this process in every usual encoding, and what a name betrays.

Standard library and `servers.secret` only. The search costs one dictionary look-up a character, however many secrets
are alive (a regular expression of all variants grows with their number).
"""

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote, quote_plus

from servers.secret import live_values

MASK = "[redacted]"
# Shorter values occur in every text by chance; masking them would tell what they are.
MIN_LENGTH = 4
_HEAD = MIN_LENGTH

_NAMES = r"authorization|cookie|set-cookie|token|secret|password|passwd|passphrase|api[_-]?key|private[_-]?key|credentials?|csrf[a-z]*|sessionid"
_SECRET_NAME = re.compile(rf"(?:^|[^a-z])(?:{_NAMES})(?:$|[^a-z])", re.IGNORECASE)
_NAMED = re.compile(
    rf"(?i)((?<![A-Za-z])(?:[\w-]*[_-])?(?:{_NAMES})[\"']?\s*[:=]\s*)((?:bearer|basic|digest|token)\s+)?(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(?<=://)([^/\s:@]*):[^/\s@]+@")
_SETUP_LINK = re.compile(r"(/setup/)[^/\s\"']+")


def is_secret_name(name: str) -> bool:
    """camelCase, snake_case and header names alike: `apiKey`, `client_secret`, `X-Api-Key`, `Authorization`."""
    return _SECRET_NAME.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)) is not None


def redact(text: str) -> str:
    """`text` without live secrets, values beside a telling name, passwords in URLs and set-up tokens."""
    return mask_named(_needles(frozenset(live_values())).mask(text))


def mask_named(text: str) -> str:
    text = _NAMED.sub(lambda found: f"{found[1]}{MASK}", text)
    text = _BEARER.sub(lambda found: f"{found[1]} {MASK}", text)
    return _SETUP_LINK.sub(rf"\1{MASK}", _USERINFO.sub(rf"\1:{MASK}@", text))


def variants(value: str) -> set[str]:
    """The forms in which a secret may turn up: raw, URL, JSON, HTML, repr, hex, base64 at each of its three offsets."""
    data = value.encode(errors="surrogatepass")
    forms = {value, quote(value, safe=""), quote(value), quote_plus(value), html.escape(value), repr(value)[1:-1]}
    forms |= {re.sub("%..", lambda code: code[0].lower(), form) for form in forms if "%" in form}
    forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value.lower(), value.upper()}
    forms |= {json.dumps(form)[1:-1] for form in set(forms)}  # text that was quoted once more, as in a logged dict
    forms |= {data.hex(), data.hex().upper()}
    forms |= {form for shift in range(3) for form in _base64_at(data, shift)}
    return {form for form in forms if len(form) >= MIN_LENGTH}


def _base64_at(data: bytes, shift: int) -> list[str]:
    """The characters that depend on `data` alone when it stands `shift` bytes after a group of three."""
    first = -(-shift * 8 // 6)
    last = (shift + len(data)) * 8 // 6
    padded = b"\0" * shift + data
    found = [encode(padded).decode()[first:last] for encode in (b64encode, urlsafe_b64encode)]
    return [form for form in found if len(form) >= 6]  # a shorter core would match by chance


class Needles:
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
        while at <= len(text) - _HEAD:
            if length := self._found(text, at):
                out += [text[done:at], MASK]
                done = at = at + length
            else:
                at += 1
        return "".join([*out, text[done:]])

    def _found(self, text: str, at: int) -> int:
        for form in self._by_head.get(text[at : at + _HEAD], ()):
            if text.startswith(form, at):
                return len(form)
        return 0


@lru_cache(maxsize=2)
def _needles(values: frozenset[str]) -> Needles:
    return Needles(values)
