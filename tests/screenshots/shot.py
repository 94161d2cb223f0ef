"""What a row of the pages to take says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from playwright.sync_api import Page


@dataclass
class World:
    """What the seeded product holds; paths are built from it."""

    setup_link: str = ""
    server: str = ""  # slug of the demo server
    succeeded: str = ""  # uid of a call that went well
    failed: str = ""  # uid of a call whose tool said isError
    audit: int = 0  # sequence number of an audit event about a call
    websocket: str = "old-sockets"  # slugs of servers that are registered and never opened
    archived: str = "retired"
    watched: str = ""  # uids of subscriptions: to text, with gaps and a webhook; to JSON, refused
    refused: str = ""
    failing: str = "broken"  # its command ends at once
    labelled: str = "embeddings"  # names a label that no worker carries
    paused: str = "held-back"
    credential: str = ""  # uid of one that a server uses, and whose server then moved
    questions: dict[str, str] = field(default_factory=dict)  # of the inbox: name in asked.py to uid


class Stage(Enum):
    """How far the product's first day has come; pages are taken in this order."""

    FRESH = "no administrator"
    EMPTY = "an administrator and no server"
    FILLED = "the demo server and some calls"


@dataclass(frozen=True)
class Shot:
    name: str
    path: Callable[[World], str]
    stage: Stage = Stage.FILLED
    signed_in: bool = True
    guest: bool = False  # seen by somebody who may only look
    prepare: Callable[[Page], None] | None = None  # opens a menu, fills a field; before the picture
    allow: tuple[str, ...] = field(default=())  # words of console errors that belong to the page


def at(path: str) -> Callable[[World], str]:
    return lambda world: path


def on_server(rest: str) -> Callable[[World], str]:
    return lambda world: f"/servers/{world.server}/{rest}"


def question(name: str) -> Callable[[World], str]:
    return lambda world: f"/inbox/{world.questions[name]}/"
