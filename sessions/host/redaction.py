"""Taking a server's own secrets out of what it sends back, before anything is stored or shown."""

import json
from collections.abc import Iterable
from typing import Any

import orjson

from servers.secret import Secret

MASK = "[redacted]"
#: shorter values occur by chance, and masking them would tell them
MIN_CHARS = 4


class Redactor:
    """Knows the secret values of one server, as `Secret`s."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._secrets = [secret for secret in secrets if len(secret.reveal()) >= MIN_CHARS]

    def text(self, text: str) -> str:
        for value in self._values():
            text = text.replace(value, MASK)
        return text

    def json_text(self, value: Any) -> str:
        """`value` as JSON text without the secrets. The tree is only walked when one of them occurs."""
        text = _dumped(value)
        return _dumped(self._walked(value)) if self._occurs(text) else text

    def value(self, value: Any) -> Any:
        """The JSON value itself, without the secrets."""
        return self._walked(value) if self._secrets and self._occurs(_dumped(value)) else value

    def _occurs(self, text: str) -> bool:
        return any(_dumped(secret)[1:-1] in text for secret in self._values())

    def _walked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._walked(item) for name, item in value.items()}
        return [self._walked(item) for item in value] if isinstance(value, list) else value

    def _values(self) -> list[str]:
        """Longest first, so that a value that contains another goes whole."""
        found = {form for secret in self._secrets for form in _forms(secret.reveal())}
        return sorted(found, key=len, reverse=True)


def _forms(value: str) -> list[str]:
    """The value, and the token of a header like `Bearer <token>`."""
    _, space, token = value.partition(" ")
    return [value, token] if space and len(token) >= MIN_CHARS else [value]


def _dumped(value: Any) -> str:
    """orjson is much faster, but knows neither integers beyond 64 bits nor lone surrogates."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))
