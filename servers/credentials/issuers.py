"""An authorization server whose metadata carries an issuer other than the one that refers to it.

It is refused (RFC 8414 section 3.3), unless an admin sets for one server which issuer to expect there. The choice
covers this pair at this server address only: any other issuer, expected or claimed, is still refused.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from servers import permissions
from servers.audit.acts import Trail, audited
from servers.audit.record import Actor, ServerRef
from servers.credentials import vault
from servers.credentials.binding import place_of, require_encrypted
from servers.enums import AuditAction, IdentityKind, TransportKind
from servers.models import Identity, Server
from servers.signals import server_changed
from servers.validators import validate_url

KEY = "expected"  # within Identity.challenge of the shared identity, no matter who signs in
_MOST = 500


@dataclass(frozen=True)
class Expected:
    """`named`: by the server's metadata; `issuer`: in the metadata found there. Compared byte for byte."""

    named: str
    issuer: str

    @property
    def words(self) -> str:
        return f"{self.issuer} instead of {self.named}"


def expected(server: Server) -> Expected | None:
    """Also None once the server has moved: the choice was made for the previous address."""
    identity = Identity.objects.filter(server=server, kind=IdentityKind.SHARED).first()
    found = identity.challenge.get(KEY) if identity else None
    if not found or tuple(found["place"]) != place_of(server):
        return None
    return Expected(found["named"], found["issuer"])


def expect(actor: Actor, user: Any, server: Server, named: str, issuer: str) -> Expected:
    """Raises access.Denied, and ValidationError with messages by part."""
    _require(actor, user, server)
    for part, address in (("named", named), ("issuer", issuer)):
        _check(part, address)
    if named == issuer:
        problem = ValidationError("This issuer is already expected.", code="same")
        raise ValidationError({"issuer": problem})
    choice = Expected(named, issuer)
    with audited(actor) as trail:
        _put(trail, server, choice)
    return choice


def forget(actor: Actor, user: Any, server: Server) -> None:
    _require(actor, user, server)
    with audited(actor) as trail:
        _put(trail, server, None)


def challenged(identity_pk: int, challenge: dict[str, Any]) -> None:
    """Store what a server asks for next to what an admin chose, which it never overwrites."""
    with transaction.atomic():
        identity = Identity.objects.select_for_update(no_key=True).get(pk=identity_pk)
        kept = {name: value for name, value in identity.challenge.items() if name == KEY}
        Identity.objects.filter(pk=identity_pk).update(challenge={**challenge, **kept})


# --- steps -------------------------------------------------------------------------------------------------------------
def _require(actor: Actor, user: Any, server: Server) -> None:
    permissions.require(user, actor, "change_server", server)
    permissions.require(user, actor, vault.PERMISSION, server)
    if server.transport == TransportKind.STDIO:
        raise ValidationError("A local process has no authorization server.", code="transport")


def _check(part: str, address: str) -> None:
    if len(address) > _MOST:
        raise ValidationError(
            {part: ValidationError(f"At most {_MOST} characters. This limit cannot be changed.", code="long")}
        )
    try:
        validate_url(address)
        require_encrypted(address)
    except ValidationError as problem:
        raise ValidationError({part: problem.messages}) from problem


def _put(trail: Trail, server: Server, choice: Expected | None) -> None:
    before = expected(server)
    identity = Identity.objects.select_for_update(no_key=True).get(server=server, kind=IdentityKind.SHARED)
    challenge = {name: value for name, value in identity.challenge.items() if name != KEY}
    if choice is not None:
        challenge[KEY] = {"named": choice.named, "issuer": choice.issuer, "place": list(place_of(server))}
    Identity.objects.filter(pk=identity.pk).update(challenge=challenge)
    if before == choice:
        return
    words = {"before": before.words if before else "", "after": choice.words if choice else ""}
    trail.note(AuditAction.SERVER_CHANGE, ServerRef.of(server), server.name, {"changes": {"expected issuer": words}})
    change, uid = AuditAction.SERVER_CHANGE, server.uid
    send = partial(server_changed.send_robust, sender=Server, server_uid=uid, change=change, reconnect=True)
    transaction.on_commit(send, robust=True)
