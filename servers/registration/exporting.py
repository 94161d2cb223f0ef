"""Writing servers to a configuration file that other MCP clients can read, as can `importing`. It contains no secrets.

A secret is written as a reference: `${NAME}` in the `mcpServers` form, a prompted input in the VS Code form. Whatever
looks like a secret but is stored in plain text, in an argument or a URL, becomes a reference as well.
"""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any

from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.configuration import COLUMNS, Registration, ValueInput
from servers.enums import AuditAction, TransportKind
from servers.models import Server
from servers.packages import pins
from servers.registration.importing.mcpadmin_member import CREDENTIALS, KEY, OWNER, PACKAGE, SECRETS
from servers.registration.importing.placeholders import replaced
from servers.registration.needed_credentials import as_values, others, used_by
from servers.validators import holds_secret, is_secret_parameter, references, secret_arguments


class Form(StrEnum):
    """The two formats that clients read."""

    MCP_SERVERS = "mcpServers"
    VS_CODE = "vscode"


_TYPES = {
    TransportKind.STDIO: "stdio",
    TransportKind.AUTO_HTTP: "http",
    TransportKind.STREAMABLE_HTTP: "streamable-http",
    TransportKind.HTTP_SSE: "sse",
    TransportKind.WEBSOCKET: "ws",
}
_VS_CODE_TYPES = _TYPES | {TransportKind.STREAMABLE_HTTP: "http"}
_DEFAULTS = {item.name: item for item in fields(Registration)}
_OF_THE_CONNECTION = ("name", "transport", "command", "arguments", "working_directory", "url", "owner_id")


class _Writer:
    """Writes one document. `inputs` collects what VS Code will prompt for."""

    def __init__(self, form: Form, *, own: bool) -> None:
        self.form, self.own = form, own
        self.inputs: list[dict[str, Any]] = []
        self._names: dict[str, tuple[int, str]] = {}

    def entry(self, server: Server) -> dict[str, Any]:
        data = Registration.of_server(server)
        # The vault credentials that the shared identity authenticates with, by name only.
        data = replace(data, values=[*data.values, *as_values(used_by(server), data.values)])
        entry: dict[str, Any] = {"type": self._type(data.transport)}
        if data.transport == TransportKind.STDIO:
            entry |= self._started(server, data)
        else:
            entry["url"] = self._url(server, data.url)
            entry |= self._values(server, "headers", data.used_values())
        secrets = [value.name for value in data.used_values() if _is_secret(value)]
        if not server.enabled:
            entry["disabled"] = True
        if self.own and (block := self._own(server, data, secrets)):
            entry[KEY] = block
        return entry

    def _type(self, transport: str) -> str:
        return (_VS_CODE_TYPES if self.form == Form.VS_CODE else _TYPES)[TransportKind(transport)]

    def _started(self, server: Server, data: Registration) -> dict[str, Any]:
        secret = secret_arguments(data.arguments)
        entry: dict[str, Any] = {"command": data.command}
        entry["args"] = [
            self._reference(server, f"ARGUMENT_{index + 1}", f"argument {index + 1}")
            if index in secret
            else self._plain(argument)
            for index, argument in enumerate(data.arguments)
        ]
        if data.working_directory:
            entry["cwd"] = self._plain(data.working_directory)
        return entry | self._values(server, "env", data.used_values())

    def _values(self, server: Server, key: str, values: list[ValueInput]) -> dict[str, Any]:
        written = {
            value.name: self._reference(server, value.name, value.name)
            if _is_secret(value)
            else self._plain(value.text())
            for value in values
        }
        return {key: written} if written else {}

    def _plain(self, text: str) -> str:
        """In the VS Code form, with variables as `${env:NAME}`: it supports no other syntax."""
        if self.form == Form.MCP_SERVERS:
            return text
        return replaced(text, lambda found: f"${{env:{found.key}}}" if found.is_variable else None)

    def _url(self, server: Server, url: str) -> str:
        """The URL without the values of parameters that look like secrets."""
        head, mark, query = url.partition("?")
        if not mark:
            return self._plain(url)
        parts = []
        for item in query.split("&"):
            name = item.partition("=")[0]
            if is_secret_parameter(item):
                parts.append(f"{name}={self._reference(server, name, f'{name} in the URL')}")
            else:
                parts.append(self._plain(item))
        return f"{self._plain(head)}?{'&'.join(parts)}"

    def _reference(self, server: Server, name: str, words: str) -> str:
        if self.form == Form.MCP_SERVERS:
            return f"${{{self._own_name(server, words, _variable(f'{server.slug}_{name}'), '_')}}}"
        key = self._own_name(server, words, f"{server.slug}-{_variable(name).lower().replace('_', '-')}", "-")
        self.inputs.append(
            {"type": "promptString", "id": key, "description": f"{server.name}: {words}", "password": True}
        )
        return f"${{input:{key}}}"

    def _own_name(self, server: Server, words: str, key: str, separator: str) -> str:
        """A separate reference for each secret: a program that reads the file sends its value wherever it occurs."""
        number, free = 1, key
        while self._names.setdefault(free, (server.pk, words)) != (server.pk, words):
            number += 1
            free = f"{key}{separator}{number}"
        return free

    def _own(self, server: Server, data: Registration, secrets: list[str]) -> dict[str, Any]:
        """What differs from the defaults of a registration, and what a client's file cannot express."""
        block = {
            name: getattr(data, name) for name in COLUMNS if name not in _OF_THE_CONNECTION and not _default(data, name)
        }
        block["slug"] = server.slug
        if self._type(data.transport) != _TYPES[TransportKind(data.transport)]:
            block["transport"] = data.transport
        if server.owner is not None:
            block[OWNER] = server.owner.get_username()
        if (pin := pins.of_server(server)) is not None and pin.is_portable:
            block[PACKAGE] = {"ecosystem": str(pin.ecosystem), **pin.plain}
        if missing := others(used_by(server)):
            block[CREDENTIALS] = [credential.plain() for credential in missing]
        return block | ({SECRETS: secrets} if secrets else {})


def exported(actor: Actor, servers: Sequence[Server], form: Form, *, own: bool) -> str:
    """`export`, recorded in the audit log."""
    text = export(servers, form, own=own)
    with audited(actor) as trail:
        details = {"servers": [server.slug for server in servers], "form": form.value}
        trail.note(AuditAction.SERVER_EXPORT, None, f"{len(servers)} servers", details)
    return text


def export(servers: Iterable[Server], form: Form = Form.MCP_SERVERS, *, own: bool = True) -> str:
    """Return the JSON text. `own`: with the member `mcpadmin`, which other clients ignore."""
    writer, entries = _Writer(form, own=own), {}
    taken: set[str] = set()
    for server in servers:
        # Names need not be unique here; in a file they must be, and an import treats names that differ only in case as
        # equal.
        numbered = (f"{server.slug} ({number})" for number in itertools.count(2))
        free = (name for name in itertools.chain((server.name, server.slug), numbered) if _folded(name) not in taken)
        name = next(free)
        taken.add(_folded(name))
        entries[name] = writer.entry(server)
        if own and name != server.name:
            entries[name].setdefault(KEY, {})["name"] = server.name
    if form == Form.VS_CODE:
        document: dict[str, Any] = {"inputs": writer.inputs, "servers": entries}
    else:
        document = {"mcpServers": entries}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _folded(name: str) -> str:
    return name.strip().casefold()


def file_name(form: Form) -> str:
    return "mcp.json" if form == Form.VS_CODE else "mcp-servers.json"


def _is_secret(value: ValueInput) -> bool:
    """Whether it is sealed, or stored in plain text although it looks like a secret; a reference is not a secret."""
    if value.secret:
        return True
    return not references(value.text()) and bool(value.text()) and holds_secret(value.name, value.text())


def _default(data: Registration, name: str) -> bool:
    item = _DEFAULTS[name]
    default = item.default_factory() if callable(item.default_factory) else item.default
    return bool(getattr(data, name) == default)


def _variable(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper()
    return name if name[:1].isalpha() else f"X_{name}"
