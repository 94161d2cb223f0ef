"""The rows that describe which pages to capture."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from playwright.sync_api import Page


@dataclass
class World:
    """The content of the seeded product, from which paths are built."""

    setup_link: str = ""
    server: str = ""  # slug of the demo server
    succeeded: str = ""  # uid of a successful call
    failed: str = ""  # uid of a call whose tool returned isError
    audit: int = 0  # sequence number of an audit event about a call
    websocket: str = "old-sockets"  # slugs of servers that are registered but never opened
    archived: str = "retired"
    watched: str = ""  # uids of subscriptions: to text, with gaps and a webhook; to JSON, refused
    refused: str = ""
    failing: str = "broken"  # its command ends at once
    labelled: str = "embeddings"  # names a label that no worker carries
    paused: str = "held-back"
    credential: str = ""  # uid of a credential that a server used before its address changed
    sink: str = ""  # uids of a sink that fails, and of an export schedule
    schedule: str = ""
    person: int = 0  # a person with groups, permissions of their own and something that they own
    invitation: str = ""  # paths of one-time links
    password_link: str = ""
    approval: str = ""  # uids of calls that wait for approval by another person or by oneself; and of a refused call
    own_approval: str = ""
    refused_call: str = ""
    token: str = ""  # uid of a token with a policy
    questions: dict[str, str] = field(default_factory=dict)  # requests in the inbox: name in asked.py -> uid


class Stage(Enum):
    """The stages of the product's first day. Pages are captured in this order."""

    FRESH = "no administrator"
    EMPTY = "an administrator and no server"
    FILLED = "the demo server and some calls"
    ALARMED = "an alarm about the audit log"


@dataclass(frozen=True)
class Shot:
    name: str
    path: Callable[[World], str]
    stage: Stage = Stage.FILLED
    signed_in: bool = True
    guest: bool = False  # seen by a user who may only view
    prepare: Callable[[Page], None] | None = None  # opens a menu or fills a field before the screenshot
    allow: tuple[str, ...] = field(default=())  # substrings of console errors that belong to the page


def at(path: str) -> Callable[[World], str]:
    return lambda world: path


def on_server(rest: str) -> Callable[[World], str]:
    return lambda world: f"/servers/{world.server}/{rest}"


def question(name: str) -> Callable[[World], str]:
    return lambda world: f"/inbox/{world.questions[name]}/"
