"""What goes over a socket: encoded once, for each of the two audiences that may exist."""

from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Frame:
    """`key` names the object inside the topic, `version` its age: an older one is never sent after a newer one.

    `moved`: milliseconds since the epoch, where the cursor of a topic is a moment and no version.
    `reserved` is the text for viewers who may not read arguments and results; None: the same for everybody.
    """

    text: str
    reserved: str | None
    key: str
    version: int = 0
    owner_id: int | None = None
    final: bool = False
    moved: int | None = None

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
