"""The topics of the live socket: what each is about, who may join it, and how its sequence is made.

Feeds have a gap-free sequence by their only writer, so a page can prove that it missed nothing. Snapshots carry the
row's version: only the newest matters.
"""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class TopicKind(StrEnum):
    AUDIT = "audit"
    SERVERS = "servers"
    SERVER = "server"
    CALL = "call"
    LOG = "log"
    DRAFT = "draft"
    INBOX = "inbox"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    SESSIONS = "sessions"
    SIGN_INS = "sign_ins"
    OWN_SIGN_INS = "own_sign_ins"


FEEDS = frozenset({TopicKind.AUDIT, TopicKind.LOG})
_KINDS = {kind.value: kind for kind in TopicKind}
_WITHOUT_UID = frozenset(
    {
        TopicKind.AUDIT,
        TopicKind.SERVERS,
        TopicKind.INBOX,
        TopicKind.SUBSCRIPTIONS,
        TopicKind.SESSIONS,
        TopicKind.SIGN_INS,
        TopicKind.OWN_SIGN_INS,
    }
)
_RIGHTS = {
    TopicKind.AUDIT: "servers.view_auditevent",
    TopicKind.SERVERS: "servers.view_server",
    TopicKind.SERVER: "servers.view_server",
    TopicKind.CALL: "servers.view_server",
    TopicKind.LOG: "servers.view_server",
    TopicKind.DRAFT: "servers.view_server",
    TopicKind.INBOX: "servers.view_server",
    TopicKind.SUBSCRIPTIONS: "servers.view_server",
    TopicKind.SUBSCRIPTION: "servers.view_server",
    TopicKind.SESSIONS: "servers.view_server",
    TopicKind.SIGN_INS: "servers.manage_credential",
    TopicKind.OWN_SIGN_INS: "servers.view_server",
}


#: of which there is one for each identity; without one it is the shared identity's
_OF_IDENTITIES = frozenset({TopicKind.SERVER, TopicKind.LOG})


@dataclass(frozen=True, slots=True)
class Topic:
    kind: TopicKind
    uid: UUID | None = None
    #: whose own session it is about
    identity: UUID | None = None

    @property
    def name(self) -> str:
        return self.hint if self.identity is None else f"{self.hint}.{self.identity}"

    @property
    def hint(self) -> str:
        """The topic of the hints that concern it."""
        return self.kind.value if self.uid is None else f"{self.kind.value}.{self.uid}"

    @property
    def feed(self) -> bool:
        return self.kind in FEEDS

    @property
    def right(self) -> str:
        """The permission that everybody who joins needs; a draft moreover belongs to one user."""
        return _RIGHTS[self.kind]

    @property
    def row(self) -> UUID:
        """The uid of the row that the topic is about; ValueError for a topic without one."""
        if self.uid is None:
            raise ValueError(f"{self.name} is about no single row")
        return self.uid


def parse(name: str) -> Topic | None:
    """None for everything that is no topic in its one spelling (lower case uid with hyphens)."""
    word, _, uid_text = name.partition(".")
    kind = _KINDS.get(word)
    if kind is None:
        return None
    if kind in _WITHOUT_UID:
        return Topic(kind) if name == word else None
    uids = [_uid(text) for text in uid_text.split(".", 2)]
    if None in uids or len(uids) > (2 if kind in _OF_IDENTITIES else 1):
        return None
    return Topic(kind, *uids)


def _uid(text: str) -> UUID | None:
    try:
        uid = UUID(text)
    except ValueError:
        return None
    return uid if str(uid) == text else None
