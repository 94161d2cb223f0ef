"""What a registration consists of, from any source: a form, a command line, a draft, a copy of another server."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from servers.enums import (
    ConnectionPolicy,
    Environment,
    EraChoice,
    NetworkAccess,
    Recording,
    SignsInAs,
    TransportKind,
    ValueKind,
)
from servers.models import Server
from servers.secret import Secret
from servers.validators import Root


@dataclass(frozen=True)
class ValueInput:
    """A header or variable. `value` None keeps the stored value of this kind and name; only a secret may be kept.

    `needed`: a secret of which only the name is known; its row stays empty until a person enters the value. A credential
    can fill such a variable.
    """

    kind: ValueKind
    name: str
    secret: bool
    value: Secret | str | None
    needed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Header names are case-insensitive (RFC 9110 section 5.1); variables are not."""
        return value_key(self.kind, self.name)

    def text(self) -> str:
        """The value in plain text, for sealing and for the child or request that it is meant for."""
        return self.value.reveal() if isinstance(self.value, Secret) else (self.value or "")


@dataclass(frozen=True)
class Vault:
    """Which credentials a draft is tested with, by reference: those that were chosen, and those of a server's identity.

    `signed_in`: the identity's grant may be used too, because the draft has the same address.
    """

    chosen: tuple[str, ...] = ()  # uids
    identity: int | None = None
    signed_in: bool = False


NO_VAULT = Vault()


def value_key(kind: str, name: str) -> tuple[str, str]:
    return str(kind), name.lower() if kind == ValueKind.HEADER else name


@dataclass(frozen=True)
class Registration:
    """All that an admin enters about a server. Seconds everywhere."""

    name: str
    transport: TransportKind
    slug: str = ""
    description: str = ""
    notes: str = ""
    owner_id: int | None = None
    environment: Environment = Environment.DEVELOPMENT
    tags: list[str] = field(default_factory=list)
    era: EraChoice = EraChoice.AUTO
    command: str = ""
    arguments: list[str] = field(default_factory=list)
    working_directory: str = ""
    readable_paths: list[str] = field(default_factory=list)
    writable_paths: list[str] = field(default_factory=list)
    network_access: NetworkAccess = NetworkAccess.PUBLIC
    network_hosts: list[str] = field(default_factory=list)
    url: str = ""
    roots: list[Root] = field(default_factory=list)
    worker_label: str = ""
    answers_sampling: bool = True
    answers_elicitation: bool = True
    recording: Recording = Recording.FULL
    signs_in_as: SignsInAs = SignsInAs.SHARED
    connection_policy: ConnectionPolicy = ConnectionPolicy.ALWAYS_ON
    idle_timeout_seconds: int = 900
    connect_timeout_seconds: int = 30
    request_timeout_seconds: int = 60
    total_timeout_seconds: int = 1800
    limits: dict[str, int] = field(default_factory=dict)
    values: list[ValueInput] = field(default_factory=list)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Registration":
        """From plain data such as a form's `registration_data()`; unknown keys are an error."""
        values = [value if isinstance(value, ValueInput) else ValueInput(**value) for value in data.get("values", ())]
        return cls(**{**data, "values": values})

    @classmethod
    def of_server(cls, server: Server) -> "Registration":
        """What is stored, with every secret kept and not decrypted."""
        values = [
            ValueInput(
                ValueKind(row.kind), row.name, row.secret, None if row.secret else row.plain, needed=row.is_needed
            )
            for row in server.values.all()
        ]
        return cls(**{name: getattr(server, name) for name in COLUMNS}, values=values)

    def columns(self) -> dict[str, Any]:
        """The fields that are columns of Server, cleared where the chosen transport has no use for them."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        unused = ("url",) if self.transport == TransportKind.STDIO else _STDIO_ONLY
        return columns | {name: _DEFAULTS[name] for name in unused}

    def used_values(self) -> list[ValueInput]:
        """The rows that the transport uses: variables for stdio, headers behind a URL."""
        kind = ValueKind.ENVIRONMENT if self.transport == TransportKind.STDIO else ValueKind.HEADER
        return [value for value in self.values if value.kind == kind]

    def plain_data(self) -> dict[str, Any]:
        """Everything in plain text, including secrets: seal it at once and never log it."""
        values = [
            {"kind": str(v.kind), "name": v.name, "secret": v.secret, "value": v.text(), "needed": v.needed}
            for v in self.values
        ]
        return {**asdict(replace(self, values=[])), "values": values}


_STDIO_ONLY = (
    *("command", "arguments", "working_directory"),
    *("readable_paths", "writable_paths", "network_access", "network_hosts"),
)
_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("url", "command", "working_directory"), ""),
    **{name: [] for name in ("arguments", "readable_paths", "writable_paths", "network_hosts")},
    "network_access": NetworkAccess.PUBLIC,
}
COLUMNS = tuple(item.name for item in fields(Registration) if item.name != "values")
