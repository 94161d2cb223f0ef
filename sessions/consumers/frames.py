"""What goes over a socket: encoded once, for each of the two audiences that may exist."""

from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Audience:
    """To whom a frame goes: to these users (None: to all) but not to those. `seers`: whether it goes to whoever sees
    other people's own sessions, whatever else is said; None: they are as all others."""

    users: frozenset[int] | None = None
    but: frozenset[int] = frozenset()
    seers: bool | None = None

    def has(self, user_id: int, sees_personal: bool) -> bool:
        if sees_personal and self.seers is not None:
            return self.seers
        return user_id not in self.but and (self.users is None or user_id in self.users)


EVERYBODY = Audience()
SEERS, OTHERS = Audience(users=frozenset(), seers=True), Audience(seers=False)


def of_owner(user_id: int | None) -> Audience:
    """Of what belongs to somebody's own session."""
    return Audience(users=frozenset({user_id} if user_id else ()), seers=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """`key` names the object inside the topic, `version` its age: an older one is never sent after a newer one.

    `moved`: milliseconds since the epoch, where the cursor of a topic is a moment and no version.
    `audience`: to whom it goes at all. `reserved` is the text for viewers who may not read arguments and results; None: the same for everybody.
    """

    text: str
    reserved: str | None
    key: str
    version: int = 0
    owner_id: int | None = None
    final: bool = False
    moved: int | None = None
    audience: Audience = EVERYBODY

    def for_viewer(self, user_id: int, reads_payloads: bool) -> str:
        if self.reserved is None or reads_payloads or user_id == self.owner_id:
            return self.text
        return self.reserved


def encode(topic: str, seq: int | None, kind: str, rows: list[dict[str, Any]], html: str | None = None) -> str:
    body: dict[str, Any] = {"t": topic, "seq": seq, "kind": kind, "rows": rows}
    if html is not None:
        body["html"] = html
    return message(body)


def message(body: dict[str, Any]) -> str:
    return orjson.dumps(body, default=str).decode()
