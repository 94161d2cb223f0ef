"""What refers to a person: what can be handed over, and what would be lost with the account."""

from dataclasses import dataclass
from typing import Any, cast

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.utils import timezone

from servers.enums import IdentityKind
from servers.kit.words import format_count
from servers.models import AgentToken, Credential, Identity, Server
from servers.signals import belongings_asked

NAMED = 5


@dataclass(frozen=True)
class Belonging:
    """`title` names what and how many. `moves`: can be handed over. `blocks`: the account stays until it is gone.
    `ends`: deleting the account deletes it, or leaves it without an owner."""

    title: str
    note: str
    moves: bool
    blocks: bool
    names: tuple[str, ...] = ()
    ends: bool = False

    @property
    def more(self) -> int:
        return max(0, len(self.names) - NAMED)

    @property
    def first_names(self) -> tuple[str, ...]:
        return self.names[:NAMED]


def of(user: Any, servers: QuerySet[Server] | None = None) -> list[Belonging]:
    """All of them; with `servers`, only those that concern these servers: a viewer's count excludes what they may not
    see."""
    seen = Server.objects.all() if servers is None else servers
    found = [*_owned(user, seen), *_identities(user, seen), *_tokens(user)]
    for _, items in belongings_asked.send(get_user_model(), user=user, servers=seen):
        found += cast("list[Belonging]", items)
    return found


def _owned(user: Any, servers: QuerySet[Server]) -> list[Belonging]:
    names = tuple(servers.filter(owner_id=user.pk).order_by("name").values_list("name", flat=True))
    if not names:
        return []
    return [Belonging(f"Owner of {format_count(len(names), 'server')}", "", True, True, names)]


def _identities(user: Any, servers: QuerySet[Server]) -> list[Belonging]:
    rows = identities_in_use(user, servers)
    if not rows:
        return []
    secrets = Credential.objects.filter(owner_id=user.pk, uses__identity__in=rows).distinct().count()
    stored = format_count(secrets, "personal credential") if secrets else "no stored credential"
    note = f"({stored}). It acts as this person and can't be handed over: remove it before deleting the account."
    names = tuple(row.server.name for row in rows)
    return [Belonging(format_count(len(rows), "personal identity", "personal identities"), note, False, True, names)]


def _tokens(user: Any) -> list[Belonging]:
    usable = AgentToken.objects.filter(user_id=user.pk, revoked_at=None, expires_at__gt=timezone.now())
    names = tuple(usable.order_by("name").values_list("name", flat=True))
    if not names:
        return []
    note = "They stop working when the account is deleted."
    return [Belonging(format_count(len(names), "agent token"), note, False, False, names, ends=True)]


def identities_in_use(user: Any, servers: QuerySet[Server]) -> list[Identity]:
    rows = Identity.objects.filter(user_id=user.pk, kind=IdentityKind.PERSONAL, ended_at=None, server__in=servers)
    return list(rows.select_related("server").order_by("server__name"))
