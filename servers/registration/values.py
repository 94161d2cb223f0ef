"""Headers and variables of a server: secrets are stored sealed, and kept if nothing new was entered."""

import uuid
from collections.abc import Iterable

from django.core.exceptions import ValidationError

from servers import crypto
from servers.configuration import Registration, ValueInput, value_key
from servers.enums import TransportKind, ValueKind
from servers.models import Server, ServerValue
from servers.secret import Secret
from servers.validators import origin

TABLE = ServerValue._meta.db_table
FIELD = "sealed"


def stored_values(server: Server) -> dict[tuple[str, str], ServerValue]:
    return {value_key(row.kind, row.name): row for row in server.values.all()}


def reveal(row: ServerValue) -> Secret | str:
    """Raises crypto.SealError."""
    if not row.secret:
        return row.plain
    if row.sealed is None:
        raise crypto.SealError(f"{row.name} has no value. Enter it in the server's settings.")
    return crypto.open_sealed(row.sealed or b"", key_id=row.key_id, table=TABLE, uid=row.uid, field=FIELD)


def write_values(server: Server, given: Iterable[ValueInput]) -> dict[str, dict[str, str]]:
    """Make the rows match `given`; rows that it does not name are removed. Returns the changes for the audit log:
    {"header Authorization": {"before": "set", "after": "changed"}}; a plain value is shown, a secret never.
    """
    before, changes = stored_values(server), {}
    kept: set[tuple[str, str]] = set()
    for value in given:
        row = before.get(value.key)
        kept.add(value.key)
        if change := _write(server, row, value):
            changes[f"{value.kind} {value.name}"] = change
    for key, row in before.items():
        if key not in kept:
            changes[f"{row.kind} {row.name}"] = {"before": _shown(row), "after": "removed"}
            row.delete()
    return changes


def _write(server: Server, row: ServerValue | None, value: ValueInput) -> dict[str, str] | None:
    if value.needed:
        return _leave_empty(server, row, value)
    if value.value is None:
        return _keep(row, value)
    before = _shown(row) if row else "absent"
    if row is not None and not row.secret and not value.secret and row.plain == value.text() and row.name == value.name:
        return None
    row = row or ServerValue(server=server, kind=value.kind, uid=uuid.uuid4())
    row.name, row.secret = value.name, value.secret
    if value.secret:
        row.plain = ""
        row.sealed, row.key_id = crypto.seal(value.text(), table=TABLE, uid=row.uid, field=FIELD)
        row.fingerprint = crypto.fingerprint(value.text())
    else:
        row.plain, row.sealed, row.key_id, row.fingerprint = value.text(), None, "", ""
    row.save()
    after = ("changed" if before == "set" else "set") if value.secret else row.plain
    return {"before": before, "after": after}


def _keep(row: ServerValue | None, value: ValueInput) -> dict[str, str] | None:
    """Nothing was entered: keep the stored secret, and keep it secret."""
    if row is None or not row.secret:
        raise ValidationError(f"Enter the value of {value.name}.", code="value_missing")
    if row.name == value.name:
        return None
    old, row.name = row.name, value.name  # a header whose name changed only in case
    row.save(update_fields=["name"])
    return {"before": old, "after": value.name}


def _leave_empty(server: Server, row: ServerValue | None, value: ValueInput) -> dict[str, str] | None:
    """Store a secret of which only the name is known. Any previous value is deleted."""
    before = _shown(row) if row else "absent"
    row = row or ServerValue(server=server, kind=value.kind, uid=uuid.uuid4())
    row.name, row.secret, row.plain, row.sealed, row.key_id = value.name, True, "", None, ""
    row.save()
    return None if before == "needed" else {"before": before, "after": "needed"}


def _shown(row: ServerValue) -> str:
    return ("needed" if row.sealed is None else "set") if row.secret else row.plain


# --- a credential is bound to the origin it was entered for -------------------------------------------------------
def secrets_to_reenter(server: Server, registration: Registration) -> list[str]:
    """Names of stored secret headers that would be sent to another party because the scheme, host or port changed."""
    if registration.transport == TransportKind.STDIO:
        return []
    had_origin = server.transport != TransportKind.STDIO and server.url
    if had_origin and origin(server.url) == origin(registration.url):
        return []
    return [value.name for value in registration.used_values() if value.value is None and not value.needed]


def require_reentered(server: Server, registration: Registration) -> None:
    if names := secrets_to_reenter(server, registration):
        message = f"The URL now points to another server. Enter the value of {', '.join(names)} again: a secret is never sent to a server it was not entered for."
        raise ValidationError({"values": ValidationError(message, code="origin_changed")})


def merged(server: Server | None, registration: Registration) -> list[ValueInput]:
    """The values with the stored secrets unsealed, for testing what is not saved yet. Raises crypto.SealError."""
    stored = stored_values(server) if server else {}
    return [_merge(stored.get(value.key), value) for value in registration.used_values()]


def _merge(row: ServerValue | None, value: ValueInput) -> ValueInput:
    if value.value is not None or (value.needed and value.kind == ValueKind.ENVIRONMENT):
        return value
    if row is not None and row.is_left_open:
        return ValueInput(ValueKind.ENVIRONMENT, value.name, secret=True, value=None, needed=True)
    if row is None or not row.secret or row.sealed is None:
        raise ValidationError(f"Enter the value of {value.name}.", code="value_missing")
    return ValueInput(ValueKind(value.kind), value.name, True, reveal(row))
