"""Secret values in memory: a wrapper that never shows them, the set of live values, and the encodings in which they
appear.

Standard library only, so that any layer may use it.
"""

import html
import json
import re
import threading
import weakref
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

#: replaces a masked value
MASK = "[redacted]"
#: shorter values occur by chance in any text; masking them would reveal what they are
MIN_LENGTH = 4

#: characters that JSON encoders write as \uXXXX: Go and Rails, Gson, Django, .NET
_BY_NUMBER = (
    (frozenset("&<>"), "04x"),
    (frozenset("&'<=>"), "04x"),
    (frozenset("&<>"), "04X"),
    (frozenset("\"&'+<>`"), "04X"),
)

#: values that consist only of these characters look the same in a URL, in JSON and in HTML
_NEVER_ESCAPED = re.compile(r"[A-Za-z0-9._-]*\Z")

_live: "weakref.WeakSet[Secret]" = weakref.WeakSet()
_guard = threading.Lock()  # iterating over a set raises if another thread adds to it
_made = 0


class Secret:
    """A value without repr, str, pickle or JSON. `reveal()` is the only way to read it, and easy to grep for."""

    __slots__ = ("__weakref__", "_value")

    def __init__(self, value: str) -> None:
        global _made
        self._value = value
        with _guard:
            _live.add(self)
            _made += 1

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is never pickled")


def live_values() -> Iterator[str]:
    """Every secret value currently alive in this process, for log redaction."""
    with _guard:
        present = list(_live)
    return (secret.reveal() for secret in present if secret)


def live_version() -> tuple[int, int]:
    """A version that differs whenever `live_values` may have changed."""
    return _made, len(_live)


def variants(value: str) -> set[str]:
    """The forms in which a secret may appear: raw, URL, JSON, HTML, repr, hex, base64 at each of the three offsets."""
    data = value.encode(errors="surrogatepass")
    forms = {value, value.lower(), value.upper()}
    if not _NEVER_ESCAPED.match(value):
        forms |= _escaped(value)
        forms |= {json.dumps(form)[1:-1] for form in set(forms)}  # text that was quoted once more, as in a logged dict
    forms |= {data.hex(), data.hex().upper()}
    forms |= {form for shift in range(3) for form in _base64_at(data, shift)}
    return {form for form in forms if len(form) >= MIN_LENGTH}


def _escaped(value: str) -> set[str]:
    """The escaped forms of a value: encoders differ in the characters that they escape."""
    forms = {quote(value, safe=""), quote(value), quote_plus(value), html.escape(value), repr(value)[1:-1]}
    # JavaScript's encodeURIComponent, and its URLSearchParams as well as Java's URLEncoder
    forms |= {quote(value, safe="!'()*"), quote_plus(value, safe="*").replace("~", "%7E")}
    forms |= {re.sub("%..", lambda code: code[0].lower(), form) for form in forms if "%" in form}
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    forms |= in_json | {form.replace("/", r"\/") for form in in_json}
    for characters, digits in _BY_NUMBER:
        if not characters.isdisjoint(value):
            codes = {ord(one): f"\\u{ord(one):{digits}}" for one in characters}
            bare = {form.replace(r"\"", '"') for form in in_json} if '"' in characters else in_json
            forms |= {form.translate(codes) for form in bare}
    return forms


def _base64_at(data: bytes, shift: int) -> list[str]:
    """The base64 characters that depend on `data` only, if it starts `shift` bytes into a group of three."""
    first = -(-shift * 8 // 6)
    last = (shift + len(data)) * 8 // 6
    padded = b"\0" * shift + data
    found = [encode(padded).decode()[first:last] for encode in (b64encode, urlsafe_b64encode)]
    return [form for form in found if len(form) >= 6]  # a shorter core would match by chance
