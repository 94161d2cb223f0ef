"""The topics of the live socket: their subject, the permission to join, and their sequence.

A feed has a gap-free sequence from its only writer, so a page can prove that it missed nothing. Snapshots carry the
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
    WIRE = "wire"
    DRAFT = "draft"
    INBOX = "inbox"
    SUBSCRIPTIONS = "subscriptions"
    SUBSCRIPTION = "subscription"
    SESSIONS = "sessions"
    SIGN_INS = "sign_ins"
    OWN_SIGN_INS = "own_sign_ins"
    OVERVIEW = "overview"
    JOBS = "jobs"
    VERIFICATION = "verification"
    EXPORTS = "exports"
    AGENTS = "agents"


FEEDS = frozenset({TopicKind.AUDIT, TopicKind.LOG, TopicKind.WIRE})
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
        TopicKind.OVERVIEW,
        TopicKind.JOBS,
        TopicKind.VERIFICATION,
        TopicKind.EXPORTS,
        TopicKind.AGENTS,
    }
)
_PERMISSIONS = {
    TopicKind.AUDIT: "view_auditevent",
    TopicKind.SERVERS: "view_server",
    TopicKind.SERVER: "view_server",
    TopicKind.CALL: "view_server",
    TopicKind.LOG: "view_server",
    TopicKind.WIRE: "view_server",
    TopicKind.DRAFT: "view_server",
    TopicKind.INBOX: "view_server",
    TopicKind.SUBSCRIPTIONS: "view_server",
    TopicKind.SUBSCRIPTION: "view_server",
    TopicKind.SESSIONS: "view_server",
    TopicKind.SIGN_INS: "manage_credential",
    TopicKind.OWN_SIGN_INS: "view_server",
    TopicKind.OVERVIEW: "view_server",
    TopicKind.JOBS: "view_backgroundjob",
    TopicKind.VERIFICATION: "verify_chain",
    TopicKind.EXPORTS: "view_auditevent",
    TopicKind.AGENTS: "view_server",
}


#: topics that exist once per identity; without an identity they are about the shared one
_OF_IDENTITIES = frozenset({TopicKind.SERVER, TopicKind.LOG, TopicKind.WIRE})


@dataclass(frozen=True, slots=True)
class Topic:
    kind: TopicKind
    uid: UUID | None = None
    #: the identity whose session the topic is about
    identity: UUID | None = None

    @property
    def name(self) -> str:
        row = "" if self.uid is None else f".{self.uid}"
        whose = "" if self.identity is None else f".{self.identity}"
        return f"{self.kind.value}{row}{whose}"

    @property
    def hint(self) -> str:
        """The topic of the hints that concern this one. The audit log contains everything that the overview
        and the agents page count; verifications, exports and sinks count as background jobs."""
        if self.kind in (TopicKind.OVERVIEW, TopicKind.AGENTS):
            return TopicKind.AUDIT.value
        if self.kind in (TopicKind.VERIFICATION, TopicKind.EXPORTS):
            return TopicKind.JOBS.value
        return self.kind.value if self.uid is None else f"{self.kind.value}.{self.uid}"

    @property
    def feed(self) -> bool:
        return self.kind in FEEDS

    @property
    def permission(self) -> str:
        """The permission required to join. A draft also belongs to one user."""
        return _PERMISSIONS[self.kind]

    @property
    def row(self) -> UUID:
        """The uid of the topic's row. ValueError for a topic without one."""
        if self.uid is None:
            raise ValueError(f"{self.name} is not about a single row")
        return self.uid


def parse(name: str) -> Topic | None:
    """None unless the name is in canonical form (lower-case uid with hyphens)."""
    word, _, uid_text = name.partition(".")
    kind = _KINDS.get(word)
    if kind is None:
        return None
    if kind in _WITHOUT_UID:
        return Topic(kind) if name == word else None
    uids = [_uid(text) for text in uid_text.split(".", 2)]
    if None in uids or len(uids) > (2 if kind in _OF_IDENTITIES else 1):
        return None
    return Topic(kind, uids[0], uids[1] if len(uids) > 1 else None)


def _uid(text: str) -> UUID | None:
    try:
        uid = UUID(text)
    except ValueError:
        return None
    return uid if str(uid) == text else None
