"""Registrations, and connection tests, that tests start from."""

from typing import Any

from servers.enums import TransportKind, ValueKind
from servers.models import ServerDraft
from servers.registration.drafts import new_draft
from servers.registration.registering import Registration, ValueInput
from servers.secret import Secret

CANARY = "canary-77aa1e"


def header(name: str = "Authorization", value: str | None = CANARY, *, secret: bool = True) -> ValueInput:
    return ValueInput(ValueKind.HEADER, name, secret, Secret(value) if secret and value is not None else value)


def variable(name: str = "API_TOKEN", value: str | None = CANARY, *, secret: bool = True) -> ValueInput:
    return ValueInput(ValueKind.ENVIRONMENT, name, secret, Secret(value) if secret and value is not None else value)


def over_http(**fields: Any) -> Registration:
    base = {"name": "Orders", "transport": TransportKind.STREAMABLE_HTTP, "url": "https://mcp.example.com/mcp"}
    return Registration(**{**base, **fields})


def over_stdio(**fields: Any) -> Registration:
    base = {"name": "Files", "transport": TransportKind.STDIO, "command": "npx", "arguments": ["-y", "files"]}
    return Registration(**{**base, **fields})


def create_draft(*given: Any, **more: Any) -> ServerDraft:
    """`new_draft`, stored without the event of its beginning."""
    draft = new_draft(*given, **more)
    draft.save()
    return draft
