"""The environment and headers of a session, opened. Called in workers only: no web process needs a secret in clear."""

from dataclasses import dataclass, field

from servers.domain.form_data import Registration
from servers.domain.values import reveal
from servers.enums import TransportKind, ValueKind
from servers.models import Server
from servers.secret import Secret


@dataclass(frozen=True)
class LaunchValues:
    environment: dict[str, str | Secret] = field(default_factory=dict)
    headers: dict[str, str | Secret] = field(default_factory=dict)


def launch_values(server: Server) -> LaunchValues:
    """Raises crypto.SealError, whose text is fit for the page. One query."""
    return _split(server.transport, [(row.kind, row.name, reveal(row)) for row in server.values.all()])


def draft_launch_values(registration: Registration) -> LaunchValues:
    """Of an opened draft (see drafts.open_draft), whose values are all there."""
    return _split(registration.transport, [(v.kind, v.name, v.value or "") for v in registration.values])


def _split(transport: str, values: list[tuple[str, str, Secret | str]]) -> LaunchValues:
    """Only what the transport uses: a server that once was stdio sends none of its variables as headers."""
    used = ValueKind.ENVIRONMENT if transport == TransportKind.STDIO else ValueKind.HEADER
    given = {name: value for kind, name, value in values if kind == used}
    return LaunchValues(environment=given) if used == ValueKind.ENVIRONMENT else LaunchValues(headers=given)
