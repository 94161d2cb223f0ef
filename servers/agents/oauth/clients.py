"""The clients that may ask for grants, and where answers to them may go.

A client's name proves nothing. What counts is where its metadata document came from, and the redirect
URIs that it registered in advance.
"""

import posixpath
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from servers import connect_limit, permissions
from servers.agents import tokens
from servers.audit.acts import audited
from servers.audit.record import Actor
from servers.enums import AuditAction, DocumentState, OAuthClientKind
from servers.json import text as json_text
from servers.models import AgentToken, OAuthClient
from servers.signals import client_document_asked, grants_deleting
from servers.storable import storable

#: how long a document that was read is valid; failures are retried sooner
FRESH: Final = timedelta(hours=1)
RETRIED: Final = timedelta(seconds=10)
#: how long the stored copy of a document is used while the document cannot be read again
KEPT: Final = timedelta(days=7)
#: for a worker that took it and died
READING_SECONDS: Final = timedelta(seconds=30)
#: a client that no administrator added is deleted this long after it was last used and its last grant ended
UNUSED: Final = timedelta(days=30)
#: a client whose document could not be read once
NEVER_READ: Final = timedelta(days=1)
DOCUMENT_BYTES: Final = 16 * 1024
MOST_CLIENTS: Final = 1_000
MOST_REDIRECTS: Final = 20
_URI_CHARS: Final = 2_000
_LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}
_HOST: Final = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{1,60}")
#: schemes that a browser or the system runs or reads itself instead of handing them to a program
_FORBIDDEN: Final = {
    *("about", "blob", "data", "file", "filesystem", "ftp", "javascript", "mailto", "sms", "tel", "vbscript"),
    *("view-source", "ws", "wss"),
}
_PUBLIC: Final = "none"


class BadClient(Exception):
    """What a client says of itself cannot be used. `error`: the code of RFC 7591 section 3.2.2. The message is for people."""

    def __init__(self, words: str, error: str = "invalid_client_metadata") -> None:
        super().__init__(words)
        self.error = error


# --- finding ---------------------------------------------------------------------------------------------------------
def usable(client_id: str) -> OAuthClient | None:
    """The client, unless it is blocked or its document was never read."""
    if "\0" in client_id:  # no text of a database holds it
        return None
    row = OAuthClient.objects.filter(client_id=client_id, blocked_at=None).first()
    return row if row is not None and (row.kind != OAuthClientKind.DOCUMENT or row.redirect_uris) else None


def listed() -> list[OAuthClient]:
    """Each with `active`, the number of its grants that count."""
    now = timezone.now()
    counts = Count("grants", filter=Q(grants__revoked_at=None, grants__expires_at__gt=now))
    return list(OAuthClient.objects.annotate(active=counts)[:MOST_CLIENTS])


def has_secret(client: OAuthClient, secret: str) -> bool:
    return constant_time_compare(tokens.digest(secret), client.digest or "0" * 64)


def matches(client: OAuthClient, uri: str) -> bool:
    """Whether the URI is registered exactly (RFC 9700 section 2.1), except for a loopback address's port (RFC 8252
    section 7.3)."""
    if uri in client.redirect_uris:
        return True
    wanted = _loopback_without_port(uri)
    return wanted is not None and any(wanted == _loopback_without_port(known) for known in client.redirect_uris)


def is_local(uri: str) -> bool:
    """Whether it leads to a client on the person's computer, which cannot be distinguished from others there."""
    parts = urlsplit(uri)
    return parts.scheme != "https" or parts.hostname in _LOOPBACK


def _loopback_without_port(uri: str) -> tuple[str, str, str] | None:
    try:
        _check_redirect(uri)
    except BadClient:
        return None
    parts = urlsplit(uri)
    if parts.scheme != "http":
        return None
    return parts.hostname or "", parts.path or "/", parts.query


# --- redirect URIs ---------------------------------------------------------------------------------------------------
def _check_redirect(uri: str) -> None:
    parts = _split(uri)
    if len(uri) > _URI_CHARS or parts is None or parts.fragment or not uri.isascii() or any(c <= " " for c in uri):
        raise BadClient(f"{uri[:200]} is not a valid redirect URI.", "invalid_redirect_uri")
    # The host also becomes part of a Content-Security-Policy, so that no other character may be in it.
    if parts.netloc and not _HOST.fullmatch(parts.netloc):
        raise BadClient(f"{uri[:200]} has a host with characters that are not allowed.", "invalid_redirect_uri")
    if parts.scheme in ("https", "http"):
        if not parts.hostname:
            raise BadClient(f"{uri[:200]} has no host.", "invalid_redirect_uri")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise BadClient(f"{uri[:200]} must be https. http is for loopback addresses only.", "invalid_redirect_uri")
        return
    if parts.scheme in _FORBIDDEN or not _SCHEME.fullmatch(parts.scheme):
        raise BadClient(f"{uri[:200]} is not a valid redirect URI.", "invalid_redirect_uri")


def checked_redirects(found: Any) -> list[str]:
    """Raises BadClient."""
    if not isinstance(found, list) or not found or not all(isinstance(uri, str) for uri in found):
        raise BadClient("redirect_uris must be a list of at least one URI.", "invalid_redirect_uri")
    if len(found) > MOST_REDIRECTS:
        raise BadClient(f"There are more than {MOST_REDIRECTS} redirect URIs.", "invalid_redirect_uri")
    for uri in found:
        _check_redirect(uri)
    return list(dict.fromkeys(found))


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


# --- metadata documents ------------------------------------------------------------------------------------------------
def is_document_url(client_id: str) -> bool:
    """As draft-ietf-oauth-client-id-metadata-document, section 2, has it."""
    parts = _split(client_id)
    if parts is None or parts.scheme != "https" or not client_id.startswith("https://") or not parts.hostname:
        return False
    plain = parts.netloc == parts.netloc.lower() and not (parts.username or parts.password)
    path = parts.path not in ("", "/") and posixpath.normpath(parts.path) == parts.path.rstrip("/")
    printable = client_id.isascii() and client_id.isprintable()
    return plain and path and not parts.fragment and len(client_id) <= 500 and printable


def of_document(actor: Actor, user: Any, client_id: str) -> OAuthClient:
    """The client with this document's URL, whose document is to be read if that is due. Until it was read once the client
    is not usable. Raises TooOften, and BadClient when there are too many clients."""
    row = OAuthClient.objects.filter(client_id=client_id).first()
    if row is None or _is_due(row):
        connect_limit.require(user)
        with audited(actor) as trail:
            row = _to_be_read(client_id)
            trail.note(AuditAction.OAUTH_CLIENT_READ, None, row.label, facts(row))
    return row


def ask(row: OAuthClient) -> bool:
    """Have a worker read its document, if that was requested. May be called repeatedly, because a wake-up may be lost.
    False if no worker runs."""
    if row.document != DocumentState.REQUESTED:
        return True
    answers = client_document_asked.send_robust(sender=OAuthClient, client_uid=row.uid)
    return any(answer is True for _, answer in answers)


def is_read(row: OAuthClient) -> bool:
    """Whether people can be asked based on the stored copy of its document: while it is being read again, only after a
    moment."""
    if row.document in (DocumentState.READ, DocumentState.FAILED):
        return row.document == DocumentState.READ or is_kept(row)
    return is_kept(row) and _age(row) > RETRIED


def is_kept(row: OAuthClient) -> bool:
    """Whether the stored copy of its document is recent enough to be used while the document cannot be read again."""
    return row.document_read_at is not None and row.document_read_at > timezone.now() - KEPT


def _age(row: OAuthClient) -> timedelta:
    """The age of its document's state."""
    return timezone.now() - (row.document_at or row.created_at)


def _to_be_read(client_id: str) -> OAuthClient:
    row = OAuthClient.objects.filter(client_id=client_id).first()
    now = timezone.now()
    if row is None:
        _make_room()
        asked = {"kind": OAuthClientKind.DOCUMENT, "document": DocumentState.REQUESTED, "document_at": now}
        row, _ = OAuthClient.objects.get_or_create(client_id=client_id, defaults=asked)
        return row
    rows = OAuthClient.objects.filter(pk=row.pk, document=row.document, document_at=row.document_at)
    if rows.update(document=DocumentState.REQUESTED, document_at=now):
        row.document, row.document_at = DocumentState.REQUESTED, now
    return row


def _make_room() -> None:
    """Make room for one more client with a document by removing clients without grants: first those whose document was
    never read, then the others, oldest first. They come back when they ask again."""
    known = OAuthClient.objects.filter(kind=OAuthClientKind.DOCUMENT)
    if known.count() < MOST_CLIENTS:
        return
    oldest = (
        _never_read().order_by("created_at").first()
        or known.filter(blocked_at=None, grants=None).order_by("created_at").first()
    )
    if oldest is None:
        raise BadClient(f"mcpadmin keeps at most {MOST_CLIENTS} clients. An administrator can delete some.")
    oldest.delete()


def _never_read() -> QuerySet[OAuthClient]:
    """A client that an administrator blocked stays: it would be back with the next request."""
    return OAuthClient.objects.filter(kind=OAuthClientKind.DOCUMENT, redirect_uris=[], blocked_at=None, grants=None)


def _is_due(row: OAuthClient) -> bool:
    lasts = {
        DocumentState.READ: FRESH,
        DocumentState.FAILED: FRESH if is_kept(row) else RETRIED,
        DocumentState.READING: READING_SECONDS,
        DocumentState.REQUESTED: FRESH,
    }
    return not row.document or _age(row) > lasts[DocumentState(row.document)]


def take(client_uid: Any) -> OAuthClient | None:
    """For a worker: claim the client whose document must be read, for one worker only."""
    waiting = OAuthClient.objects.filter(uid=client_uid, document=DocumentState.REQUESTED)
    if not waiting.update(document=DocumentState.READING, document_at=timezone.now()):
        return None
    return OAuthClient.objects.get(uid=client_uid)


def read(client: OAuthClient, body: bytes) -> None:
    """Keep what its document says. Raises BadClient."""
    try:
        found: Any = json_text.loads(body.decode())
    except ValueError as problem:
        raise BadClient("The document is not JSON.") from problem
    if not isinstance(found, dict) or found.get("client_id") != client.client_id:
        raise BadClient("The document does not name its own address as client_id.")
    method = found.get("token_endpoint_auth_method", _PUBLIC)
    others = found.get("token_endpoint_auth_methods_supported")  # as ChatGPT names them, beside the one it prefers
    if method != _PUBLIC and not (isinstance(others, list) and _PUBLIC in others):
        raise BadClient(
            f"The document asks for {str(method)[:60]}. mcpadmin supports documents of public clients only."
        )
    name, redirects = cleaned_name(found.get("client_name")), checked_redirects(found.get("redirect_uris"))
    now = timezone.now()
    OAuthClient.objects.filter(pk=client.pk).update(
        name=name,
        redirect_uris=redirects,
        document=DocumentState.READ,
        document_problem="",
        document_at=now,
        document_read_at=now,
    )


def not_read(client: OAuthClient, problem: str) -> None:
    OAuthClient.objects.filter(pk=client.pk).update(
        document=DocumentState.FAILED, document_problem=storable(problem, 300), document_at=timezone.now()
    )


# --- what administrators do ---------------------------------------------------------------------------------------------
def add(actor: Actor, user: Any, name: str, redirects: Sequence[str], *, confidential: bool) -> tuple[OAuthClient, str]:
    """A client of an administrator, with a fixed id. Raises access.Denied (recorded) and ValidationError by field."""
    permissions.require(user, actor, "administer", subject=name[:200])
    try:
        found = checked_redirects(list(redirects))
    except BadClient as problem:
        raise ValidationError({"redirect_uris": str(problem)}) from problem
    secret = secrets.token_urlsafe(32) if confidential else ""
    with audited(actor) as trail:
        client = OAuthClient.objects.create(
            kind=OAuthClientKind.ADDED,
            client_id=secrets.token_urlsafe(18),
            name=name,
            redirect_uris=found,
            digest=tokens.digest(secret) if secret else "",
            added_by=actor.name[:150],
        )
        trail.note(AuditAction.OAUTH_CLIENT_ADD, None, client.label, facts(client))
    return client, secret


def block(actor: Actor, user: Any, client: OAuthClient) -> int:
    """Block it and revoke its grants. Returns how many. Raises access.Denied (recorded)."""
    permissions.require(user, actor, "administer", subject=client.label)
    with audited(actor) as trail:
        row = OAuthClient.objects.select_for_update().get(pk=client.pk)
        if row.blocked_at is not None:
            return 0
        row.blocked_at, row.blocked_by = timezone.now(), actor.name[:150]
        row.save(update_fields=["blocked_at", "blocked_by"])
        ended = _end_grants(row, actor)
        trail.note(AuditAction.OAUTH_CLIENT_BLOCK, None, row.label, facts(row) | {"grants": ended})
    return ended


def unblock(actor: Actor, user: Any, client: OAuthClient) -> None:
    permissions.require(user, actor, "administer", subject=client.label)
    with audited(actor) as trail:
        row = OAuthClient.objects.select_for_update().get(pk=client.pk)
        if row.blocked_at is not None:
            row.blocked_at, row.blocked_by = None, ""
            row.save(update_fields=["blocked_at", "blocked_by"])
            trail.note(AuditAction.OAUTH_CLIENT_UNBLOCK, None, row.label, facts(row))


def delete(actor: Actor, user: Any, client: OAuthClient) -> None:
    """Delete it with its grants. Their calls stay in the history; a client with many calls is blocked first."""
    permissions.require(user, actor, "administer", subject=client.label)
    if before := _letting_go(AgentToken.objects.filter(client=client)):
        block(actor, user, client)
        for work in before:
            work()
    with audited(actor) as trail:
        row = OAuthClient.objects.select_for_update().get(pk=client.pk)
        trail.note(AuditAction.OAUTH_CLIENT_DELETE, None, row.label, facts(row) | {"grants": _end_grants(row, actor)})
        row.delete()


def _letting_go(grants: QuerySet[AgentToken]) -> list[Callable[[], None]]:
    answers = (work for _, work in grants_deleting.send(AgentToken, grants=grants) if work is not None)
    return [cast("Callable[[], None]", work) for work in answers]


def _end_grants(client: OAuthClient, actor: Actor) -> int:
    """Saved one by one: each save ends the open streams of its person."""
    grants = AgentToken.objects.filter(client=client, revoked_at=None)
    for grant in grants:
        grant.revoked_at, grant.revoked_by = timezone.now(), actor.name[:150]
        grant.save(update_fields=["revoked_at", "revoked_by"])
    return len(grants)


def forget_unused() -> int:
    """Delete clients that registered themselves, have not been used for long, and have no grant or only grants that
    ended long ago; and those whose document was never read. Blocked ones stay."""
    now = timezone.now()
    lasting = AgentToken.objects.filter(client=OuterRef("pk"), revoked_at=None, expires_at__gt=now - UNUSED)
    came = OAuthClient.objects.exclude(kind=OAuthClientKind.ADDED).filter(~Exists(lasting), blocked_at=None)
    unused = came.annotate(seen=Coalesce("last_used_at", "created_at")).filter(seen__lt=now - UNUSED)
    for work in _letting_go(AgentToken.objects.filter(client__in=unused.values("pk"))):
        work()
    with transaction.atomic():
        deleted = (unused.delete(), _never_read().filter(created_at__lt=now - NEVER_READ).delete())
    return sum(by_model.get("servers.OAuthClient", 0) for _, by_model in deleted)


def may_be_sent_errors(client: OAuthClient, redirect_uri: str) -> bool:
    """Whether errors may be sent without a page in between. Anyone can register an address, and a link that redirects
    through us to it looks like one of ours (RFC 9700 section 4.11.2)."""
    return client.kind == OAuthClientKind.ADDED or is_local(redirect_uri)


def facts(client: OAuthClient) -> dict[str, Any]:
    return {"client_id": client.client_id, "kind": client.kind, "redirect_uris": client.redirect_uris[:10]}


def cleaned_name(given: Any) -> str:
    """The name that the client gives, as one line."""
    return " ".join(storable(given).split())[:120] if isinstance(given, str) else ""
