"""Drafts: configurations that are tested before they are saved. A draft is sealed as a whole and expires in an hour."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from servers import connect_limit, crypto, permissions
from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput, Vault
from servers.credentials import vault as credentials
from servers.credentials.binding import place_of
from servers.credentials.variables import with_declared
from servers.enums import IdentityKind, TransportKind, ValueKind
from servers.models import Credential, Identity, Server, ServerDraft
from servers.registration.checking import check
from servers.registration.command_permissions import require_stdio_permission
from servers.registration.reference_permissions import require_references
from servers.registration.values import merged, require_reentered
from servers.secret import Secret
from servers.signals import draft_changed

LIFETIME = timedelta(hours=1)
TABLE, FIELD = ServerDraft._meta.db_table, "sealed"
_WORKER_FIELDS = frozenset({"state", "steps", "report", "fault", "detail", "stderr_tail"})


def new_draft(
    actor: Actor,
    user: Any,
    registration: Registration,
    server: Server | None = None,
    chosen: Sequence[Credential] = (),
) -> ServerDraft:
    """Return a draft that is not stored yet: starting a test stores it. Raises access.Denied, ValidationError and
    crypto.SealError. With `server`, its stored secrets are merged in.

    `chosen`: credentials of the vault to test it with. Only the worker unseals their values.
    """
    permissions.require(user, actor, "change_server" if server else "add_server", server, subject=registration.name)
    require_stdio_permission(user, actor, registration.transport, registration.name, server)
    registration = with_declared(registration, chosen)
    check(registration)
    credentials.require_chosen(actor, user, registration, chosen)
    connect_limit.require(user)
    if server is not None:
        require_reentered(server, registration)
    registration = replace(registration, values=merged(server, registration))
    require_references(user, actor, registration, server)
    purge_drafts()
    uid = uuid.uuid4()
    whole = registration.plain_data() | {"vault": asdict(_vault(server, registration, chosen))}
    sealed, key_id = crypto.seal(json.dumps(whole), table=TABLE, uid=uid, field=FIELD)
    return ServerDraft(
        uid=uid,
        user=user,
        transport=registration.transport,
        worker_label=registration.worker_label,
        sealed=sealed,
        key_id=key_id,
        expires_at=timezone.now() + LIFETIME,
    )


def open_draft(draft: ServerDraft) -> Registration:
    """Call it in a worker. Raises crypto.SealError."""
    data = _opened(draft)
    data.pop("vault", None)
    values = [
        ValueInput(ValueKind(v["kind"]), v["name"], v["secret"], _value(v), v.get("needed", False))
        for v in data["values"]
    ]
    return Registration.of({**data, "transport": TransportKind(data["transport"]), "values": values})


def _value(data: dict[str, Any]) -> Secret | str | None:
    if data.get("needed"):
        return None
    return Secret(data["value"]) if data["secret"] else str(data["value"])


def vault_of(draft: ServerDraft) -> Vault:
    """Call it in a worker. Raises crypto.SealError."""
    vault = _opened(draft).get("vault", {})
    return Vault(**{**vault, "chosen": tuple(vault.get("chosen", ()))})


def _opened(draft: ServerDraft) -> dict[str, Any]:
    opened = crypto.open_sealed(draft.sealed, key_id=draft.key_id, table=TABLE, uid=draft.uid, field=FIELD)
    data: dict[str, Any] = json.loads(opened.reveal())
    return data


def _vault(server: Server | None, registration: Registration, chosen: Sequence[Credential]) -> Vault:
    """A server's own credentials go where they would go once it is saved: only to its current destination."""
    uids = tuple(str(credential.uid) for credential in chosen)
    if server is None or place_of(server) != place_of(registration):
        return Vault(uids)
    identity = Identity.objects.get(server=server, kind=IdentityKind.SHARED)
    return Vault(uids, identity.pk, signed_in=server.url == registration.url)


def update_draft(uid: uuid.UUID, **fields: Any) -> bool:
    """Store what the worker has found so far: any of state, steps, report, fault, detail, stderr_tail. Returns False
    once the draft is gone."""
    if unknown := fields.keys() - _WORKER_FIELDS:
        raise ValueError(f"a worker must not write {sorted(unknown)}")
    with transaction.atomic():
        changed = ServerDraft.objects.filter(uid=uid).update(version=F("version") + 1, **fields)
        if changed:
            transaction.on_commit(partial(draft_changed.send_robust, sender=ServerDraft, draft_uid=uid), robust=True)
    return bool(changed)


def purge_drafts() -> int:
    """Delete expired drafts. Returns how many."""
    return ServerDraft.objects.filter(expires_at__lte=timezone.now()).delete()[0]
