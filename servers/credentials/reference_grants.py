"""Which references a person may use: granted by name, to them or to one of their groups. Superusers may use all.

A registration, and a credential that is based on a reference, remember who is responsible for their references: the
person who last saved what decides where the values go. At each launch they resolve only what is granted to that person
at that time. So removing a grant, or disabling or deleting an account, takes effect at the next connection, and another
person with the grant takes over by saving.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast

from servers import access, permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor
from servers.credentials import references
from servers.enums import AuditAction, CredentialKind, TransportKind, ValueKind
from servers.models import Credential, CredentialUse, ReferenceGrant, Server, ServerValue
from servers.signals import server_changed

PERMISSION = "grant_reference"
SHOWN = 100
_BY_REFERENCE = [kind for kind in CredentialKind if kind.by_reference]
_MAX_NAME = 1_005
WHERE = "under Credentials, References"


class _All(Collection[str]):
    """What a superuser may use."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


ALL = _All()


def granted_to(user: Any) -> Collection[str]:
    """The names that a person may use. None for a deleted or disabled account."""
    if user is None or not user.is_active:
        return frozenset()
    if user.is_superuser:
        return ALL
    grants = ReferenceGrant.objects.filter(Q(user_id=user.pk) | Q(group__user=user.pk))
    return frozenset(grants.values_list("name", flat=True))


def granted_to_server(server: Server) -> Collection[str]:
    """What the server's registration may refer to now."""
    return _with(granted_to(server.references_by), ReferenceGrant.objects.filter(server_id=server.pk))


def granted_to_credential(credential: Credential) -> Collection[str]:
    return _with(granted_to(credential.references_by), ReferenceGrant.objects.filter(credential_id=credential.pk))


def _with(granted: Collection[str], kept: QuerySet[ReferenceGrant]) -> Collection[str]:
    return granted if granted is ALL else frozenset(granted) | set(kept.values_list("name", flat=True))


def lacking(user: Any, names: Iterable[str]) -> list[str]:
    """The `names` that the person may not use."""
    wanted = sorted(set(names))
    granted = granted_to(user) if wanted else ()
    return [name for name in wanted if name not in granted]


def require(user: Any, actor: Actor, names: Iterable[str], subject: str, server: Server | None = None) -> None:
    """Raises ValidationError, recorded. Call it before the verb's transaction, never inside."""
    if missing := lacking(user, names):
        permissions.record_refusal(actor, server, subject, permission="use a reference", references=missing)
        raise ValidationError(refused(missing), code="reference_not_granted")


def refused(missing: Iterable[str]) -> str:
    """In words for the person who lacks the grant."""
    written = ", ".join(f"${{{name}}}" for name in missing)
    names = access.administrators()
    who = f"An administrator ({', '.join(names)})" if names else "An administrator"
    return f"You don't have permission to use {written}: each reference is granted by name. {who} can grant it to you {WHERE}."


# --- the verbs of grants -----------------------------------------------------------------------------------------------
def grant(actor: Actor, user: Any, name: str, to: Any) -> ReferenceGrant:
    """`to`: a person or a group. Returns the existing grant, if there is one. Raises access.Denied and
    ValidationError with messages by field."""
    permissions.require(user, actor, PERMISSION, subject=name[:200])
    name = checked_name(name)
    holder: dict[str, Any] = {"group": to} if isinstance(to, Group) else {"user": to}
    with audited(actor) as trail:
        row, made = ReferenceGrant.objects.get_or_create(name=name, **holder, defaults={"created_by_id": user.pk})
        if made:
            trail.note(AuditAction.REFERENCE_GRANT, None, name[:300], {"to": describe_holder(row)})
    return row


def revoke(actor: Actor, user: Any, grant: ReferenceGrant) -> None:
    """Sessions that may depend on it reconnect, and those that do are refused."""
    permissions.require(user, actor, PERMISSION, subject=grant.name[:200])
    with audited(actor) as trail:
        _end(trail, [grant])


def end_of_group(trail: Trail, group: Group) -> None:
    """As `revoke`, for all grants of a group that is about to be deleted."""
    _end(trail, ReferenceGrant.objects.select_related("group").filter(group=group))


def end_of_person(trail: Trail, user: Any) -> None:
    """As `revoke`, for all grants of a person whose account is about to be deleted."""
    _end(trail, ReferenceGrant.objects.select_related("user").filter(user=user))


def _end(trail: Trail, grants: Iterable[ReferenceGrant]) -> None:
    dependent: dict[int, Server] = {}
    for grant in grants:
        servers = _dependent(grant)
        if ReferenceGrant.objects.filter(pk=grant.pk).delete()[0]:
            trail.note(AuditAction.REFERENCE_REVOKE, None, grant.name[:300], {"from": describe_holder(grant)})
            dependent |= {server.pk: server for server in servers}
    for server in dependent.values():
        _reconnect(server)


def _dependent(grant: ReferenceGrant) -> list[Server]:
    """Servers that may use the reference by this grant. A sealed value may contain it, too."""
    servers, uses = Server.objects.none(), CredentialUse.objects.none()
    if grant.server_id is not None:
        servers = Server.objects.filter(pk=grant.server_id)
    elif grant.credential_id is not None:
        uses = CredentialUse.objects.filter(credential_id=grant.credential_id)
    else:
        people: dict[str, Any] = {"pk": grant.user_id} if grant.user_id is not None else {"groups": grant.group_id}
        answering = get_user_model()._default_manager.filter(**people)
        servers = Server.objects.filter(references_by__in=answering)
        uses = CredentialUse.objects.filter(credential__references_by__in=answering, credential__kind__in=_BY_REFERENCE)
    found = {
        server.pk: server
        for server in servers.prefetch_related("values")
        if grant.name in written_in(server) or any(row.secret for row in server.values.all())
    }
    found |= {use.identity.server_id: use.identity.server for use in uses.select_related("identity__server")}
    return list(found.values())


def _reconnect(server: Server) -> None:
    send = partial(
        server_changed.send_robust,
        sender=Server,
        server_uid=server.uid,
        change=AuditAction.SERVER_CHANGE,
        reconnect=True,
    )
    transaction.on_commit(send, robust=True)


def written_in(server: Server) -> list[str]:
    """References in values stored in plain text. `server`: with its values."""
    stdio = server.transport == TransportKind.STDIO
    rows = [row for row in server.values.all() if (row.kind == ValueKind.ENVIRONMENT) == stdio]
    texts = [row.plain for row in rows]
    own = {row.name for row in rows}
    if not stdio:
        return [name for text in (*texts, server.url) for name in references.names(text)]
    line = [name for text in (*server.arguments, server.working_directory) for name in references.names(text)]
    return [*(name for text in texts for name in references.names(text)), *(name for name in line if name not in own)]


def checked_name(text: str) -> str:
    """The name of one reference, which may be entered as it is written in a registration. Raises ValidationError."""
    text = text.strip()
    inner = text[2:-1] if text.startswith("${") and text.endswith("}") else text
    if len(inner) > _MAX_NAME or references.names(f"${{{inner}}}") != [inner]:
        words = "Enter one reference, such as MCP_TOKEN or file:/run/secrets/token."
        raise ValidationError({"name": ValidationError(words, code="reference")})
    return inner


def describe_holder(grant: ReferenceGrant) -> str:
    if grant.user is not None:
        return str(grant.user.get_username())
    if grant.group is not None:
        return f"group {grant.group.name}"
    return grant.server.name if grant.server is not None else f"credential {grant.credential}"


# --- for the page ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class GrantRow:
    """`kind`: user, group, server or credential."""

    grant: ReferenceGrant
    kind: str
    holder: str

    @property
    def written(self) -> str:
        return f"${{{self.grant.name}}}"


def rows() -> list[GrantRow]:
    """All grants, by name. One query."""
    found = ReferenceGrant.objects.select_related("user", "group", "server", "credential", "created_by")
    return [GrantRow(row, _kind(row), describe_holder(row)) for row in found]


@dataclass(frozen=True)
class Refused:
    """A server that waits for a grant: `names` it refers to; `answers`: the person who needs the grant."""

    server: Server
    names: list[str]
    answers: Any


def refused_now(servers: QuerySet[Server]) -> list[Refused]:
    """Based on values stored in plain text, for at most SHOWN servers."""
    found: list[Refused] = []
    granted: dict[int | None, Collection[str]] = {}
    rows = _with_references(servers.filter(archived_at=None))
    for server in rows.select_related("references_by").prefetch_related("values", "reference_grants"):
        names = set(written_in(server)) - {one.name for one in server.reference_grants.all()}
        if names and server.references_by_id not in granted:  # one person is responsible for many servers
            granted[server.references_by_id] = granted_to(server.references_by)
        if missing := sorted(name for name in names if name not in granted[server.references_by_id]):
            found.append(Refused(server, missing, server.references_by))
        if len(found) == SHOWN:
            break
    return found


def _with_references(servers: QuerySet[Server]) -> QuerySet[Server]:
    """At least those in whose registration `written_in` finds one: few of a thousand, which need not be read for it."""
    words = servers.annotate(line=Cast("arguments", TextField()))
    values = ServerValue.objects.filter(server=OuterRef("pk"), plain__contains="${")
    places = Q(url__contains="${") | Q(working_directory__contains="${") | Q(line__contains="${")
    return words.filter(places | Exists(values))


def _kind(row: ReferenceGrant) -> str:
    return next(kind for kind in ("user", "group", "server", "credential") if getattr(row, f"{kind}_id") is not None)
