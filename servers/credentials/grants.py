"""The OAuth grant of an identity, as rows: sealed as a whole, refreshed by one holder, and never replaced by an older
one.

The contents of a grant belong to `sessions.mcp.oauth.grant`; here they are plain data. `place`: of the server that the
tokens are for. A server may move while a token request is pending, and a sign-in may be removed: the result of such a
request is not used for the new place, and does not restore anything that was erased.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from servers import crypto
from servers.credentials import issuers
from servers.credentials.authorizations import UNDER_WAY
from servers.credentials.binding import Destination, belongs, bound_to, place_of
from servers.credentials.vault import FIELD, TABLE
from servers.enums import CredentialKind
from servers.models import Credential, CredentialUse, Identity
from servers.secret import Secret

#: longer than the requests of one refresh may take; a holder that died is replaced after this time
HOLD = timedelta(seconds=40)
#: in the details of a grant whose client was entered by a person
MANUAL = "manual"
_NAME_CHARS = 100
#: characters for a server and for a person, if the name of a credential contains both
_OWN_SERVER_CHARS, _OWN_CHARS = 60, 39


class GrantMissing(Exception):
    """What the token was renewed for, or what the user signed in to, no longer exists. The message is for the page."""

    def __init__(self) -> None:
        super().__init__(
            "The sign-in was removed, or the server's address was changed, so the new token was not kept. Sign in again."
        )


@dataclass(frozen=True)
class EnteredClient:
    """A client that a person registered at an authorization server and entered here."""

    client_id: str
    issuer: str


@dataclass(frozen=True)
class Kept:
    """`row`: its primary key. A renewed grant replaces only this row."""

    row: int
    text: Secret = field(repr=False)


def row_of(identity_pk: int) -> Credential | None:
    """The grant in use. Also None if the server has moved away from the place that it was issued for."""
    identity = Identity.objects.select_related("server").get(pk=identity_pk)
    uses = CredentialUse.objects.select_related("credential").filter(
        identity=identity, blanked_at=None, credential__kind=CredentialKind.OAUTH
    )
    return next((use.credential for use in uses if belongs(use.credential, identity.server)), None)


def load(identity_pk: int, place: Destination) -> Kept | None:
    """JSON. Raises crypto.SealError."""
    row = row_of(identity_pk)
    if row is None or bound_to(row) != place:
        return None
    text = crypto.open_sealed(row.sealed or b"", key_id=row.key_id, table=TABLE, uid=row.uid, field=FIELD)
    return Kept(row.pk, text)


def entered_client(identity: Identity) -> EnteredClient | None:
    """What the next sign-in of this identity uses by default."""
    row = row_of(identity.pk)
    by_hand = row is not None and row.details.get("registration") == MANUAL
    return EnteredClient(row.details["client"], row.issuer) if row is not None and by_hand else None


def save(identity_pk: int, place: Destination, text: Secret, shown: dict[str, Any], renewed: int | None = None) -> bool:
    """`shown`: issuer, generation, signed_in, expires_at (seconds of the epoch or None), scopes, client, by_hand.
    `renewed`: the row that it comes from; None for the first grant.

    False if the row already has a newer generation. Raises GrantMissing.
    """
    row = _first(identity_pk, place) if renewed is None else Credential.objects.filter(pk=renewed).first()
    if row is None:
        raise GrantMissing
    sealed, key_id = crypto.seal(text.reveal(), table=TABLE, uid=row.uid, field=FIELD)
    now = timezone.now()
    fresh = shown["generation"] > row.generation
    fields = {
        "sealed": sealed,
        "key_id": key_id,
        "issuer": shown["issuer"][:2000],
        "generation": shown["generation"],
        "fingerprint": crypto.fingerprint(text.reveal()),
        "expires_at": _moment(shown["expires_at"]),
        "details": {"scopes": " ".join(shown["scopes"])[:500], "client": shown["client"][:500]}
        | ({"registration": MANUAL} if shown.get("by_hand") else {}),
        "refresh_fault": "" if shown["signed_in"] else "No user is signed in.",
    }
    if fresh and shown["signed_in"]:
        fields |= {"refreshed_at": now, "sealed_at": now}
    elif row.refreshed_at is not None:
        fields["refreshed_at"] = now  # the refresh that was refused
    return Credential.objects.filter(pk=row.pk, generation__lte=shown["generation"]).update(**fields) == 1


def hold(identity_pk: int, holder: UUID) -> bool:
    """Become the one holder that refreshes, by the database's clock: the clocks of two machines may differ by more than
    HOLD. Also True if there is nothing to refresh yet."""
    row = row_of(identity_pk)
    if row is None:
        return True
    over = Q(held_until__lte=Now()) | Q(held_until__gt=Now() + 2 * HOLD)  # set before the clock was set back
    free = Q(held_until=None) | over | Q(held_by=holder)
    return Credential.objects.filter(free, pk=row.pk).update(held_by=holder, held_until=Now() + HOLD) == 1


def release(holder: UUID) -> None:
    Credential.objects.filter(held_by=holder).update(held_by=None, held_until=None)


def challenged(identity_pk: int, metadata_url: str, scopes: tuple[str, ...], scheme: str = "") -> None:
    """What the server named when it asked for a sign-in; the next one begins with it."""
    challenge: dict[str, Any] = {
        "metadata_url": metadata_url[:2000],
        "scopes": [scope[:200] for scope in scopes[:50]],
    }
    issuers.challenged(identity_pk, challenge | ({"scheme": scheme} if scheme else {}))


def _first(identity_pk: int, place: Destination) -> Credential | None:
    """None if the identity has ended, or its server has moved. An identity whose first sign-in is in progress counts as
    ended until it is complete."""
    # Locked, so that a request that ends it now finds this grant, or we find it ended.
    identity = (
        Identity.objects.select_for_update(of=("self",), no_key=True)
        .select_related("server")
        .filter(pk=identity_pk)
        .first()
    )
    if identity is None or place_of(identity.server) != place:
        return None
    if identity.ended_at is not None and not identity.authorizations.filter(state__in=UNDER_WAY).exists():
        return None
    return row_of(identity_pk) or _new(identity, place)


def _new(identity: Identity, place: Destination) -> Credential:
    """An empty row in use by the identity; filled by its caller in the same transaction."""
    scheme, host, port = place
    uid = uuid4()
    name = f"{identity.server.name[:_NAME_CHARS]} sign-in"
    if identity.user_id:
        name = f"{identity.server.name[:_OWN_SERVER_CHARS]} sign-in of {identity.name[:_OWN_CHARS]}"
    if Credential.objects.filter(name__iexact=name).exists():
        name = f"{name} {uid.hex[:8]}"
    row = Credential.objects.create(
        uid=uid,
        owner_id=identity.user_id,
        name=name,
        kind=CredentialKind.OAUTH,
        scheme=scheme,
        host=host,
        port=port,
        sealed_at=timezone.now(),
    )
    # A grant for the server's previous place is no longer needed. A person's grant would otherwise be missed when their
    # data is erased.
    before = CredentialUse.objects.filter(identity=identity, credential__kind=CredentialKind.OAUTH)
    if identity.user_id:
        Credential.objects.filter(pk__in=[use.credential_id for use in before]).delete()
    before.delete()
    CredentialUse.objects.create(credential=row, identity=identity)
    return row


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
