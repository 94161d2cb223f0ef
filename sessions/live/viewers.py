"""The user of a socket: checked at the hello, every 15 s, and when the user's sign-in or permissions change."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.models import Session
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from servers import access
from servers.models import ServerDraft
from sessions.calls import visibility
from sessions.live.topics import Topic, TopicKind
from sessions.subscriptions import board


@dataclass(frozen=True)
class Viewer:
    """`user` carries the permissions as of the last check; each check creates a new viewer."""

    user: Any
    session_key: str

    @property
    def user_id(self) -> int:
        return int(self.user.pk)

    def may_join(self, topic: Topic) -> bool:
        return access.may(self.user, topic.permission)

    @property
    def reads_payloads(self) -> bool:
        return access.may_read_payloads(self.user)

    @property
    def sees_personal(self) -> bool:
        return access.may_see_personal_sessions(self.user)

    @property
    def permissions(self) -> frozenset[str]:
        return frozenset({"*"}) if self.user.is_superuser else frozenset(self.user.get_all_permissions())


Seat = tuple[int, str]  # user id, session key


def valid_viewers(seats: Iterable[Seat]) -> dict[Seat, Viewer]:
    """The viewers whose sign-in is still valid, with their current permissions. For reader threads."""
    distinct = set(seats)
    users = {
        user.pk: user for user in get_user_model().objects.filter(pk__in={seat[0] for seat in distinct}, is_active=True)
    }
    keys = {key for _, key in distinct}
    sessions = Session.objects.filter(session_key__in=keys, expire_date__gt=timezone.now())
    contents = {session.session_key: session.get_decoded() for session in sessions}
    found = {}
    for seat in distinct:
        user, content = users.get(seat[0]), contents.get(seat[1])
        if user is not None and content is not None and _signed_in(user, content):
            user.get_all_permissions()  # fills the user's cache, so that the loop can check without a query
            found[seat] = Viewer(user, seat[1])
    return found


def _signed_in(user: Any, content: dict[str, Any]) -> bool:
    """Like django.contrib.auth.get_user: the session names this user and matches the current password."""
    proof = content.get(HASH_SESSION_KEY, "")
    return content.get(SESSION_KEY) == str(user.pk) and constant_time_compare(proof, user.get_session_auth_hash())


def sees_row(viewer: Viewer, topic: Topic) -> bool:
    """Whether the row behind the topic exists for this viewer. For reader threads."""
    servers = access.visible_servers(viewer.user)
    if topic.kind in (TopicKind.SERVER, TopicKind.LOG, TopicKind.WIRE):
        own = access.own_identities(viewer.user).filter(server__in=servers, server__uid=topic.row, uid=topic.identity)
        return servers.filter(uid=topic.row).exists() if topic.identity is None else own.exists()
    if topic.kind is TopicKind.CALL:
        return visibility.visible(viewer.user).filter(uid=topic.row).exists()
    if topic.kind is TopicKind.SUBSCRIPTION:
        return board.subscriptions(viewer.user, servers).filter(uid=topic.row).exists()
    if topic.kind is TopicKind.SIGN_INS:  # only for users who could sign in there
        return access.may(viewer.user, "view") and access.may(viewer.user, "change")
    if topic.kind is TopicKind.DRAFT:  # it contains what one user typed
        return ServerDraft.objects.filter(uid=topic.row, user_id=viewer.user_id).exists()
    return True
