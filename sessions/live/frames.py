"""Messages sent over a socket: encoded once for each of the (at most two) variants."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from servers.audit.record import Actor


@dataclass(frozen=True, slots=True)
class Audience:
    """The recipients of a frame: `users` (None: everyone) except `but`. `sees_personal` overrides both for viewers who
    see other users' personal sessions: True sends, False withholds, None applies no override."""

    users: frozenset[int] | None = None
    but: frozenset[int] = frozenset()
    sees_personal: bool | None = None

    def has(self, user_id: int, sees_personal: bool) -> bool:
        if sees_personal and self.sees_personal is not None:
            return self.sees_personal
        return user_id not in self.but and (self.users is None or user_id in self.users)


#: a listener that may have missed a hint receives what changed this recently; pages load the rest anyway
RECENT = timedelta(minutes=2)
EVERYBODY = Audience()
SEES_PERSONAL = Audience(users=frozenset(), sees_personal=True)


def of_owner(user_id: int | None) -> Audience:
    """The audience of data about a personal session: its owner, and viewers who see all personal sessions."""
    return Audience(users=frozenset({user_id} if user_id else ()), sees_personal=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """`key` names the object inside the topic, `version` its age: an older frame is never sent after a newer one.

    `moved`: milliseconds since the epoch, if the topic's cursor is a time and not a version. `audience`: who receives
    the frame at all. `reserved`: the text for viewers, except the owner, who may not read arguments and results.
    Without it, everyone receives `text`; or, of a `confidential` frame, only those who may read it: it was made while
    no one else was listening, and a person who joined after that gets a separate frame.
    """

    text: str
    reserved: str | None
    key: str
    version: int = 0
    owner_id: int | None = None
    final: bool = False
    moved: int | None = None
    audience: Audience = EVERYBODY
    confidential: bool = False
    #: records that a person who is not the owner reads `text`
    record_reading: Callable[[Actor], None] | None = None

    def for_viewer(self, user_id: int, reads_payloads: bool) -> str | None:
        if reads_payloads or user_id == self.owner_id:
            return self.text
        return self.text if self.reserved is None and not self.confidential else self.reserved


def encode(topic: str, seq: int | None, kind: str, rows: list[dict[str, Any]], html: str | None = None) -> str:
    body: dict[str, Any] = {"t": topic, "seq": seq, "kind": kind, "rows": rows}
    if html is not None:
        body["html"] = html
    return message(body)


def message(body: dict[str, Any]) -> str:
    return orjson.dumps(body, default=str).decode()
