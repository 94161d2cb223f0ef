"""The verbs of the vault; `servers/crypto.py` seals the values. Each checks the permission, acts and is audited in one transaction, and notifies on commit.

A value is write-only: pages replace it and never show it. Raises access.Denied, ValidationError with messages by part,
crypto.SealError.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet
from django.utils import timezone

from servers import access, crypto, limits, permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.configuration import Registration
from servers.credentials import identities, kinds, reference_grants, references, variables
from servers.credentials.binding import ANYWHERE, Destination, belongs, bound_to, in_words, place_of, require_encrypted
from servers.credentials.kinds import Parts
from servers.enums import AuditAction, CredentialKind, IdentityKind, TransportKind, ValueKind
from servers.models import Credential, CredentialUse, Identity, Server, ServerValue
from servers.secret import Secret
from servers.validators import origin, validate_url, validate_websocket_url

TABLE, FIELD = Credential._meta.db_table, "sealed"
PERMISSION = "manage_credential"
MOST_OFFERED = 300
_MAX_NAME, _FAULT_CHARS = 120, 300


def create(actor: Actor, user: Any, name: str, parts: Parts, url: str = "") -> Credential:
    """`url`: any address of the place that it is for; none for an environment variable."""
    permissions.require(user, actor, PERMISSION, subject=name)
    _check(actor, user, name, parts)
    scheme, host, port = _place(parts.kind, url)
    row = Credential(name=_free_name(name), kind=parts.kind, scheme=scheme, host=host, port=port, created_by_id=user.pk)
    _put(row, parts)
    row.references_by_id = user.pk if _references(parts) else None
    with audited(actor) as trail:
        row.save(force_insert=True)
        trail.note(
            AuditAction.CREDENTIAL_CREATE, None, row.name, {"kind": row.kind, "bound_to": in_words(bound_to(row))}
        )
    return row


def replace(actor: Actor, user: Any, credential: Credential, parts: Parts) -> Credential:
    """Another value in its place; kind and binding stay. Sessions that use it reconnect.

    Under another variable only where each server that uses it leaves that one to credentials too."""
    permissions.require(user, actor, PERMISSION, subject=credential.name)
    _check(actor, user, credential.name, parts)
    _require_shared(credential)
    if _is_renamed(credential, parts):
        for identity in _identities_of(credential):
            _require_variable(actor, identity.server, parts)
    with audited(actor) as trail:
        current = Credential.objects.select_for_update().get(pk=credential.pk)
        if current.kind != parts.kind:
            raise ValidationError(
                "The kind of a credential cannot be changed. Add a new credential instead.", code="kind"
            )
        if _is_renamed(current, parts):
            for identity in _identities_of(current):
                variables.require_fillable(identity.server, parts.details["variable"])
                _refuse_doubles(identity, current, parts.details)
        details = {"kind": current.kind, **_changed_details(current.details, parts.details)}
        _put(current, parts)
        current.references_by_id = user.pk if _references(parts) else None
        current.reference_grants.all().delete()
        current.version = F("version") + 1
        current.save()
        trail.note(AuditAction.CREDENTIAL_REPLACE, None, current.name, details)
        _notify(_identities_of(current))
    current.refresh_from_db()
    return current


def create_own(actor: Actor, user: Any, server: Server, parts: Parts) -> Credential:
    """For the user's own identity at this server, which it creates. No one else ever uses it."""
    permissions.require(user, actor, identities.PERMISSION, server)
    if parts.kind.by_reference:
        raise ValidationError("References are for the shared identity only.", code="kind")
    _check(actor, user, server.name, parts, server)
    _require_transport(server, parts.kind)
    _require_variable(actor, server, parts)
    scheme, host, port = _place(parts.kind, server.url)
    with identities.begun(actor, user, server) as (trail, identity):
        if identity.uses.count() >= limits.number("own_credentials"):
            words = f"You have too many credentials here. {limits.stated('own_credentials')} Delete one first."
            raise ValidationError(words, code="too_many")
        name = identities.free_name(server, user)
        row = Credential(name=name, kind=parts.kind, scheme=scheme, host=host, port=port, created_by_id=user.pk)
        row.owner_id = user.pk
        if parts.kind == CredentialKind.ENVIRONMENT:
            variables.require_fillable(identity.server, parts.details["variable"])
        _refuse_doubles(identity, row, parts.details)
        _put(row, parts)
        row.save(force_insert=True)
        CredentialUse.objects.create(credential=row, identity=identity)
        details = {"kind": row.kind, "bound_to": in_words(bound_to(row))}
        trail.add(identities.event(trail, identity, AuditAction.CREDENTIAL_CREATE, row.name, details))
        _notify([identity])
    return row


def delete_own(actor: Actor, user: Any, server: Server, credential: Credential) -> None:
    """The identity stays the user's own: it speaks without this from its next connection on."""
    with audited(actor) as trail:
        identity = access.own_identities(user).filter(server=server, uses__credential=credential).first()
        if identity is None or credential.owner_id != user.pk:
            raise ValidationError("You don't have this credential on this server.", code="not_own")
        details = {"kind": credential.kind}
        trail.add(identities.event(trail, identity, AuditAction.CREDENTIAL_DELETE, credential.name, details))
        Credential.objects.filter(pk=credential.pk).delete()
        _notify([identity])


def delete(actor: Actor, user: Any, credential: Credential) -> None:
    """Servers that use it go on without it when they connect next."""
    permissions.require(user, actor, PERMISSION, subject=credential.name)
    with audited(actor) as trail:
        used_by = _identities_of(credential)
        if Credential.objects.filter(pk=credential.pk).delete()[0]:
            details = {"kind": credential.kind, "servers": [identity.server.name for identity in used_by]}
            trail.note(AuditAction.CREDENTIAL_DELETE, None, credential.name, details)
            _notify(used_by)


def attach(actor: Actor, user: Any, server: Server, credential: Credential) -> CredentialUse:
    """The server's shared identity speaks with it from now on.

    A person who may register commands leaves its variable to credentials by that; others need it to be so already."""
    permissions.require(user, actor, "change_server", server)
    permissions.require(user, actor, PERMISSION, server)
    declares = credential.kind == CredentialKind.ENVIRONMENT and access.may(user, "manage_stdio")
    if not declares:
        _require_variable(actor, server, Parts(CredentialKind(credential.kind), credential.details))
    with audited(actor) as trail:
        current = Server.objects.select_for_update(no_key=True).get(pk=server.pk)
        if declares and current.transport == TransportKind.STDIO:
            variables.declare(trail, current, credential.details.get("variable", ""))
        use = attach_in_transaction(trail, current, credential)
        _notify([use.identity])
    return use


def attach_in_transaction(trail: Trail, server: Server, credential: Credential) -> CredentialUse:
    """Runs in the transaction of a verb that has checked the permissions."""
    identity = Identity.objects.get(server=server, kind=IdentityKind.SHARED)
    _require_fit(identity, credential)
    attached = CredentialUse.objects.filter(credential=credential, identity=identity, blanked_at=None).first()
    if attached is not None:
        return attached
    use, _ = CredentialUse.objects.update_or_create(
        credential=credential, identity=identity, defaults={"blanked_at": None}
    )
    trail.note(AuditAction.CREDENTIAL_ATTACH, ServerRef.of(server), credential.name, {"kind": credential.kind})
    return use


def detach(actor: Actor, user: Any, server: Server, credential: Credential) -> None:
    permissions.require(user, actor, "change_server", server)
    permissions.require(user, actor, PERMISSION, server)
    with audited(actor) as trail:
        identity = Identity.objects.get(server=server, kind=IdentityKind.SHARED)
        if CredentialUse.objects.filter(identity=identity, credential=credential).delete()[0]:
            trail.note(AuditAction.CREDENTIAL_DETACH, ServerRef.of(server), credential.name)
            _notify([identity])


def opened(credential: Credential) -> Parts:
    """In workers only. Raises crypto.SealError."""
    text = crypto.open_sealed(
        credential.sealed or b"", key_id=credential.key_id, table=TABLE, uid=credential.uid, field=FIELD
    )
    return kinds.opened(credential.kind, credential.details, text)


def used(pks: Iterable[int], row_pks: Iterable[int], at: datetime) -> None:
    """These credentials and these rows of a server were sent."""
    Credential.objects.filter(pk__in=list(pks)).update(last_used_at=at)
    ServerValue.objects.filter(pk__in=list(row_pks)).update(last_used_at=at)


def token_had(pk: int, version: int, at: datetime, fault: str = "") -> None:
    """A session asked for a token with it; `fault`: why it got none. Of a value that was replaced it says nothing."""
    rows = Credential.objects.filter(pk=pk, version=version)
    rows.update(refreshed_at=at, refresh_fault=fault[:_FAULT_CHARS])


def attachable(server: Server) -> list[Credential]:
    """Bound to this server's place, not personal, and not in use by its shared identity."""
    scheme, host, port = place_of(server)
    bound = Credential.objects.filter(owner=None, scheme=scheme, host=host, port=port)
    bound = bound.filter(kind=CredentialKind.ENVIRONMENT) if server.transport == TransportKind.STDIO else bound
    shared = CredentialUse.objects.filter(identity__server=server, identity__kind=IdentityKind.SHARED, blanked_at=None)
    return list(bound.exclude(pk__in=shared.values("credential_id")))


def choosable(user: Any) -> QuerySet[Credential]:
    """What may be attached to an unsaved server: shared ones. A grant belongs to the identity that signed in."""
    rows = Credential.objects.filter(owner=None).exclude(kind=CredentialKind.OAUTH)
    return rows if access.may(user, PERMISSION) else rows.none()


@dataclass(frozen=True)
class Offer:
    uid: str
    name: str
    kind: str
    place: str


def offers(user: Any) -> list[Offer]:
    """For the form of a new server: each with the place that it is bound to."""
    rows = choosable(user)[:MOST_OFFERED]
    return [Offer(str(row.uid), row.name, row.get_kind_display(), in_words(bound_to(row))) for row in rows]


def chosen(user: Any, uids: Iterable[str]) -> list[Credential]:
    return list(choosable(user).filter(uid__in=list(uids)))


def require_chosen(actor: Actor, user: Any, registration: Registration, chosen: Sequence[Credential]) -> None:
    """Raises access.Denied, and ValidationError at `credentials`."""
    if not chosen:
        return
    permissions.require(user, actor, PERMISSION, subject=registration.name)
    try:
        for index, credential in enumerate(chosen):
            _require_place(registration, credential)
            _require_variable(actor, registration, Parts(CredentialKind(credential.kind), credential.details))
            headers = {value.name.lower() for value in registration.used_values() if value.kind == ValueKind.HEADER}
            _refuse_double(registration.name, credential.kind, credential.details, headers, chosen[:index])
    except ValidationError as problem:
        raise ValidationError({"credentials": problem}) from problem


# --- steps ---------------------------------------------------------------------------------------------------------------
def _check(actor: Actor, user: Any, subject: str, parts: Parts, server: Server | None = None) -> None:
    """The rules of its kind; a refusal of what would run code or send a reference is recorded."""
    if parts.kind == CredentialKind.ENVIRONMENT:
        variable = parts.details.get("variable", "")
        if variables.execution_refusal(variable):
            permissions.record_refusal(
                actor, server, subject, permission="set a variable of a command", variable=variable[:200]
            )
    kinds.check(parts)
    reference_grants.require(user, actor, _references(parts), subject, server)


def _is_renamed(credential: Credential, parts: Parts) -> bool:
    """Whether it would fill another variable."""
    return parts.kind == CredentialKind.ENVIRONMENT and credential.details != parts.details


def _changed_details(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, Any]:
    """For an event: such as another variable or user name."""
    names = sorted(name for name in {*before, *after} if before.get(name, "") != after.get(name, ""))
    changes = {name: {"before": before.get(name, ""), "after": after.get(name, "")} for name in names}
    return {"changes": changes} if changes else {}


def _references(parts: Parts) -> list[str]:
    return references.names(parts.details["token"]) if parts.kind.by_reference else []


def _require_variable(actor: Actor, source: Server | Registration, parts: Parts) -> None:
    """Raises ValidationError, recorded. Before a transaction; the verbs ask once more within it."""
    if parts.kind != CredentialKind.ENVIRONMENT or source.transport != TransportKind.STDIO:
        return
    variable = parts.details.get("variable", "")
    try:
        variables.require_fillable(source, variable)
    except ValidationError:
        server = source if isinstance(source, Server) else None
        permissions.record_refusal(
            actor,
            server,
            source.name,
            permission="fill a variable that credentials cannot fill",
            variable=variable[:200],
        )
        raise


def _identities_of(credential: Credential) -> list[Identity]:
    return list(Identity.objects.filter(uses__credential=credential).select_related("server").distinct())


def _require_shared(credential: Credential) -> None:
    if credential.owner_id is not None:
        raise ValidationError(
            f"{credential.name} is a personal credential. Only its owner can set its value.", code="own"
        )


def _place(kind: CredentialKind, url: str) -> Destination:
    if kind == CredentialKind.ENVIRONMENT:
        return ANYWHERE
    try:
        (validate_websocket_url if url.lower().startswith(("ws:", "wss:")) else validate_url)(url)
    except ValidationError as problem:
        raise ValidationError({"url": problem}) from problem
    require_encrypted(url)
    return origin(url)


def _free_name(name: str) -> str:
    name = name.strip()
    if not name or len(name) > _MAX_NAME:
        raise ValidationError(
            {"name": f"Enter a name of at most {_MAX_NAME} characters. This limit cannot be changed."}
        )
    if Credential.objects.filter(name__iexact=name).exists():
        raise ValidationError({"name": "Another credential has this name. Choose a different one."})
    return name


def _put(row: Credential, parts: Parts) -> None:
    text = Secret(parts.sealed_text())
    row.uid = row.uid or uuid.uuid4()
    row.sealed, row.key_id = crypto.seal(text.reveal(), table=TABLE, uid=row.uid, field=FIELD)
    row.details = dict(parts.details)
    values = [value.reveal() for value in parts.secrets.values() if value]
    row.fingerprint = crypto.fingerprint(text.reveal() if len(values) > 1 else values[0]) if values else ""
    row.sealed_at = timezone.now()
    row.expires_at, row.refreshed_at, row.refresh_fault = None, None, ""
    if parts.kind == CredentialKind.CERTIFICATE:
        row.expires_at = kinds.certificate_of(parts).not_valid_after_utc


def _require_fit(identity: Identity, credential: Credential) -> None:
    """It must not be personal, must be bound to the server's place, and be the only one for its header or variable."""
    _require_shared(credential)
    _require_place(identity.server, credential)
    if credential.kind == CredentialKind.ENVIRONMENT:
        variables.require_fillable(identity.server, credential.details.get("variable", ""))
    _refuse_doubles(identity, credential, credential.details)


def _require_place(source: Server | Registration, credential: Credential) -> None:
    if not belongs(credential, source):
        words = f"{credential.name} is bound to {in_words(bound_to(credential))} and is never sent anywhere else."
        raise ValidationError(words, code="bound_elsewhere")
    _require_transport(source, credential.kind)


def _require_transport(source: Server | Registration, kind: str) -> None:
    if (kind == CredentialKind.ENVIRONMENT) != (source.transport == TransportKind.STDIO):
        raise ValidationError("This kind of credential does not work with this transport.", code="transport")


def _refuse_doubles(identity: Identity, credential: Credential, details: Mapping[str, Any]) -> None:
    """A secret header of the registration is the shared identity's only."""
    rows = identity.server.values.filter(kind=ValueKind.HEADER)
    rows = rows if identity.kind == IdentityKind.SHARED else rows.filter(secret=False)
    others = Credential.objects.filter(uses__identity=identity, uses__blanked_at=None).exclude(pk=credential.pk)
    _refuse_double(identity.server.name, credential.kind, details, {row.name.lower() for row in rows}, others)


def _refuse_double(
    name: str, kind: str, details: Mapping[str, Any], headers: set[str], others: Iterable[Credential]
) -> None:
    """Two for one header or variable: which one is sent would be undefined."""
    taken = set(headers)
    for other in others:
        taken |= kinds.header_names(other.kind, other.details)
        same = other.kind == kind == CredentialKind.CERTIFICATE
        if same or (other.details.get("variable") and other.details == details):
            raise ValidationError(f"{name} already uses {other.name} for this.", code="double")
    if double := taken & kinds.header_names(kind, details):
        words = f"{name} already sends the {double.pop()} header. Remove it there first."
        raise ValidationError(words, code="double")


def _notify(changed: Iterable[Identity]) -> None:
    """As after a change of the registration: what the sessions of these identities are opened with is different now."""
    for identity in changed:
        identities.notify(identity)
