"""Rows of feeds (the audit log, the log of a session, its recorded wire) after a cursor. For reader threads only."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Max, QuerySet
from django.urls import reverse

from servers.audit import query as audit_query
from servers.kit.visible import visible_text
from sessions.enums import LogSource
from sessions.live.frames import encode
from sessions.live.topics import Topic, TopicKind
from sessions.models import LogLine, WireMessage
from sessions.wire import rows as wire_rows

FEED_ROWS = 200
FEED_CHARS = 200_000
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FeedPart:
    """Rows after a cursor in order of `seq`, also encoded as a frame; `more` if there was no room for all."""

    rows: list[Row]
    more: bool
    text: str = ""

    @property
    def end(self) -> int:
        """The cursor after this part; 0 if it did not move."""
        return int(self.rows[-1]["seq"]) if self.rows else 0


def feeds_after(topic: Topic, cursors: Iterable[int]) -> dict[int, FeedPart]:
    return {seq: feed_after(topic, seq) for seq in cursors}


def feed_after(topic: Topic, seq: int) -> FeedPart:
    """Rows up to the next multiple of FEED_ROWS, so that readers from any cursor soon share the same reads."""
    limit = FEED_ROWS - seq % FEED_ROWS
    rows = _rows_after(topic, seq, limit)
    kept = _within(rows, FEED_CHARS)
    text = encode(topic.name, kept[-1]["seq"], feed_kind(topic), kept) if kept else ""
    return FeedPart(kept, len(rows) == limit or len(kept) < len(rows), text)


def feed_kind(topic: Topic) -> str:
    return {TopicKind.AUDIT: "event", TopicKind.LOG: "line", TopicKind.WIRE: "message"}[topic.kind]


def _within(rows: list[Row], chars: int) -> list[Row]:
    """The first rows that together fit into one frame, but at least one."""
    for index, row in enumerate(rows):
        chars -= len(str(row))
        if chars < 0:
            return rows[: max(1, index)]
    return rows


def feed_head(topic: Topic) -> int:
    """The newest sequence number, 0 before the first row."""
    if topic.kind is TopicKind.AUDIT:
        return audit_query.head_seq()
    rows = _wire_messages(topic) if topic.kind is TopicKind.WIRE else _log_lines(topic)
    return rows.aggregate(newest=Max("seq"))["newest"] or 0


def _rows_after(topic: Topic, seq: int, limit: int) -> list[Row]:
    if topic.kind is TopicKind.AUDIT:
        return _audit_after(seq, limit)
    return _wire_after(topic, seq, limit) if topic.kind is TopicKind.WIRE else _log_after(topic, seq, limit)


def _audit_after(seq: int, limit: int) -> list[Row]:
    return [audit_query.event_row(event) for event in audit_query.rows_after(seq, limit)]


def _log_lines(topic: Topic) -> QuerySet[LogLine]:
    return LogLine.objects.filter(**_of_session(topic))


def _wire_messages(topic: Topic) -> QuerySet[WireMessage]:
    return WireMessage.objects.filter(**_of_session(topic))


def _of_session(topic: Topic) -> dict[str, Any]:
    whose = {"identity": None} if topic.identity is None else {"identity__uid": topic.identity}
    return {"server__uid": topic.row, **whose}


def _log_after(topic: Topic, seq: int, limit: int) -> list[Row]:
    lines = _log_lines(topic).filter(seq__gt=seq).order_by("seq")[:limit]
    return [
        {
            "seq": line.seq,
            "at": line.at.isoformat(),
            "level": line.level,
            "from": line.source,
            "source": visible_text(
                " · ".join(dict.fromkeys(filter(None, [LogSource(line.source).label, line.logger])))
            ),
            "text": visible_text(line.text),
            "call": str(line.call_uid) if line.call_uid else None,
            "href": reverse("calls:detail", args=[line.call_uid]) if line.call_uid else "",
        }
        for line in lines
    ]


def _wire_after(topic: Topic, seq: int, limit: int) -> list[Row]:
    rows = _wire_messages(topic).filter(seq__gt=seq).order_by("seq").defer("body", "sealed", "detail")
    return [wire_rows.row(message) for message in rows[:limit]]
