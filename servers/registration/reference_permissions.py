"""Who may save a registration that contains references, and who is responsible for them afterwards.

The connection decides where a reference's value goes: transport, URL, command line, headers and variables. A person who
changes one of these needs a grant for every reference in the registration and is responsible for them from then on.
Other fields can be changed without a grant.
"""

from dataclasses import replace
from typing import Any

from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput
from servers.credentials import reference_grants, references
from servers.crypto import SealError
from servers.enums import TransportKind, ValueKind
from servers.models import Server
from servers.registration.values import merged, stored_values

_PLACES = ("transport", "url", "command", "arguments", "working_directory", "worker_label")


def references_in(registration: Registration) -> list[str]:
    """The names of the references. `registration`: with its stored secrets unsealed (see values.merged)."""
    values = registration.used_values()
    texts = [value.text() for value in values if value.value is not None]
    found = [name for text in texts for name in references.names(text)]
    if registration.transport != TransportKind.STDIO:
        return [*found, *references.names(registration.url)]
    own = {value.name for value in values if value.kind == ValueKind.ENVIRONMENT}
    command_line = [*registration.arguments, registration.working_directory]
    return [*found, *(name for text in command_line for name in references.names(text) if name not in own)]


def require_references(user: Any, actor: Actor, registration: Registration, server: Server | None = None) -> None:
    """Raises ValidationError, already recorded. `registration`: with its stored secrets unsealed."""
    reference_grants.require(user, actor, references_in(registration), registration.name, server)


def require_changed_references(user: Any, actor: Actor, server: Server, data: Registration) -> None:
    """Like `require_references`, if the connection changes."""
    if not same_connection(server, data):
        require_references(user, actor, _opened(server, data), server)


def answers(user: Any, server: Server, data: Registration) -> bool:
    """Whether this person is responsible for the references after saving `data` over `server`: always if the connection
    changes, otherwise if they have grants that the currently responsible person lacks."""
    if not same_connection(server, data):
        return True
    names = references_in(_opened(server, data))
    granted = reference_grants.granted_to_server(server)
    return any(name not in granted for name in names) and not reference_grants.lacking(user, names)


def same_connection(server: Server, data: Registration) -> bool:
    columns = data.columns()
    if any(columns[name] != getattr(server, name) for name in _PLACES):
        return False
    stored = stored_values(server)
    given = data.used_values()
    return stored.keys() == {value.key for value in given} and all(
        _unchanged(stored[value.key], value) for value in given
    )


def _unchanged(row: Any, value: ValueInput) -> bool:
    if row.name != value.name or row.secret != value.secret:
        return False
    return value.value is None if row.secret else row.plain == value.text()


def _opened(server: Server, data: Registration) -> Registration:
    """`data` with its stored secrets unsealed. One that cannot be unsealed cannot be sent until it is entered again."""
    try:
        return replace(data, values=merged(server, data))
    except SealError:
        return replace(data, values=[value for value in data.values if value.value is not None])
