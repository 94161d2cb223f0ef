"""Removes a server's own secrets from what it sends back, before anything is stored or shown."""

import json
import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson

from servers.audit import payload_privacy
from servers.privacy import redaction
from servers.secret import MASK, MIN_LENGTH, Secret, variants
from servers.validators import holds_secret, looks_like_token

__all__ = ["CUT_CHARS", "MASK", "WORDS_CHARS", "Redactor", "dumped", "masked_words"]
#: characters of a server's text: no page and no log keeps more
WORDS_CHARS = 8_000
#: characters of a detected secret that may be cut off
CUT_CHARS = 512
#: forms of values that became known later: each text is searched for each form, and a session may live for months
_MOST_LEARNED = 2_000
_LEAST_DIGITS = 6
#: minimum length of a line of a multi-line value; shorter ones, such as a bracket, are not secret by themselves
_LINE_CHARS = 16
#: minimum length of a part whose name marks it as a secret; shorter ones may be the name of a method
_PART_CHARS = 8
_PAIR = re.compile(r"(?<![\w.-])([\w.-]+)\s*=\s*\"?([^;&\s\"]+)")
#: host and path of a URL
_NAMES_IN_URL = re.compile(r"(?<=[/@])[^/@?#:;&=\s\"]+(?=[/?#:]|$)")
_SESSION = re.compile(r"sess(?:ion)?[-_]?(?:id|token)|(?:^|[^a-z])(?:sess(?:ion)?|[hs]?sid)$", re.IGNORECASE)
#: names of methods, sources and switches, whose values occur in every answer: authSource, Authentication,
#: allowed_auth. A name that ends like the name of a secret is one: supportPassword.
_NO_SECRET = re.compile(
    r"auth[-_]?(?:source|mech|type|method|provider|entication$)"
    r"|^(?:allow|support|require|enable)(?!.*(?:pass|pwd|secret|token|key|credential)\w{0,5}$)",
    re.IGNORECASE,
)


class Redactor:
    """Knows the secret values of one server, in every form in which a server may send them back."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._given = _forms(secrets)
        #: oldest first
        self._learned: dict[str, None] = {}
        self._know(self._given)

    def learn(self, secrets: Iterable[Secret]) -> None:
        """Add values that became known later, such as a renewed token. If there are too many, the oldest of these are
        forgotten: their tokens have expired. What was known from the start stays."""
        for form in _forms(secrets):
            self._learned.pop(form, None)
            self._learned[form] = None
        while len(self._learned) > _MOST_LEARNED:
            del self._learned[next(iter(self._learned))]
        self._know(self._given.union(self._learned))

    def _know(self, forms: Iterable[str]) -> None:
        #: longest first, so that a value that contains another is masked as a whole
        self._forms = sorted(forms, key=len, reverse=True)
        #: also as JSON writes them
        self._searched = tuple(dict.fromkeys((*self._forms, *(dumped(form)[1:-1] for form in self._forms))))
        #: minimum length of a number, matched only as a whole: shorter ones occur in every schema
        self._numbers = {form for form in self._forms if form.isdecimal() and len(form) >= _LEAST_DIGITS}
        #: characters
        self.longest = max(map(len, self._searched), default=0)

    def text(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def json_text(self, value: Any) -> str:
        """`value` as JSON text without the secrets. Walks the tree only if one of them occurs."""
        text = dumped(value)
        return dumped(self._walked(value)) if self.occurs(text) else text

    def value(self, value: Any) -> Any:
        """The JSON value itself, without the secrets."""
        return self._walked(value) if self._forms and self.occurs(dumped(value)) else value

    def occurs(self, text: str) -> bool:
        """Whether a secret is in this text, which may be JSON."""
        return any(map(text.__contains__, self._searched))

    def _walked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._walked(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._walked(item) for item in value]
        return MASK if self._numbers and type(value) in (int, float) and self._is_secret(value) else value

    def _is_secret(self, number: float) -> bool:
        return (str(int(number)) if number == number // 1 else str(number)) in self._numbers


def masked_words(text: str, redactor: Redactor, most: int | None = WORDS_CHARS) -> str:
    """A server's text that is not JSON, for a page or a log: without its own secrets and those that are detected. Only
    as much is searched as `most` needs: a server may send megabytes, and each takes a second. A secret that is
    truncated at the end cannot be recognized, so as much text as a secret may take is left out."""
    spare = redactor.longest + CUT_CHARS
    cut = most is not None and len(text) > 2 * most + spare
    if most is not None and cut:
        text = text[: 2 * most + spare]
    masked = redaction.detected_in(redactor.text(text), payload_privacy.latest())
    return masked[: max(0, len(masked) - spare)][:most] if cut else masked[:most]


def _forms(secrets: Iterable[Secret]) -> set[str]:
    values = {form for secret in secrets for form in _values(secret.reveal())}
    return {form for value in values for form in variants(value)}


def _values(value: str) -> list[str]:
    """The value, and the parts of it that are secrets by themselves, because servers repeat those without the rest."""
    texts = [value, *(text for name, text in _leaves(value) if _is_secret(name, text))]
    inside = [part for _, text in _leaves(value) or [("", value)] for part in (*_of_url(text), *_of_pairs(text))]
    return [form for text in (*texts, *inside) for form in _written(text)]


def _is_secret(name: str, text: str) -> bool:
    if len(text) < _PART_CHARS or "://" in text:
        return False
    if _NO_SECRET.search(name):
        return looks_like_token(text)
    return holds_secret(name, text) or bool(_SESSION.search(name))


def _leaves(value: str) -> list[tuple[str, str]]:
    """The texts in a JSON document, each with its nearest name. Many servers take headers or an account as JSON."""
    if value.lstrip()[:1] not in ("{", "["):
        return []
    try:
        todo: list[tuple[str, Any]] = [("", json.loads(value))]
    except (ValueError, RecursionError):
        return []
    found = []
    while todo:
        name, item = todo.pop()
        if isinstance(item, dict):
            todo += item.items()
        elif isinstance(item, list):
            todo += [(name, one) for one in item]
        elif isinstance(item, str):
            found.append((name, item))
    return found


def _of_url(value: str) -> list[str]:
    """The password, or a token in place of the user. A password that is a name in the same URL is not a secret, and
    occurs in every answer."""
    if "://" not in value or "@" not in value:
        return []
    try:
        parts = urlsplit(value.strip())
    except ValueError:
        return []
    user, password = parts.username or "", parts.password or ""
    if not password:
        return [user, unquote(user)] if looks_like_token(user) else []
    if password in f"{parts.scheme} {user} {parts.hostname} {parts.path}":
        return []
    return [password, unquote(password)]


def _of_pairs(value: str) -> list[str]:
    """The secrets in cookies, queries and database driver settings, except those that are also plain values in the
    text."""
    pairs = _PAIR.findall(value) if "=" in value else []
    plain = {text for name, text in pairs if not _is_secret(name, text)} | set(_NAMES_IN_URL.findall(value))
    return [
        form for name, text in pairs if _is_secret(name, text) and text not in plain for form in {text, unquote(text)}
    ]


def _written(value: str) -> list[str]:
    """The value; the token of a header like `Bearer <token>`, for `Basic` also what it encodes; the lines of a
    multi-line key, which its server may write one by one."""
    scheme, _, token = value.partition(" ")
    found = [value, token]
    if scheme.lower() == "basic":
        account = _decoded(token)
        found += [account, account.partition(":")[2]]
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        found += [line for line in lines if len(line) >= _LINE_CHARS and not line.startswith("-----")]
    return [form for form in found if len(form) >= MIN_LENGTH]


def _decoded(token: str) -> str:
    try:
        return b64decode(token, validate=True).decode()
    except ValueError:  # it is not base64, or does not encode text
        return ""


def dumped(value: Any) -> str:
    """orjson is much faster, but supports neither integers beyond 64 bits nor lone surrogates, nor as much nesting.
    ValueError if it nests too deeply for both."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return json.dumps(value, separators=(",", ":"))
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
