"""Turns a topic into frames: reads rows once for all listeners and renders their HTML. For reader threads only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Max, QuerySet
from django.template.loader import render_to_string
from django.urls import reverse

from servers.audit import query as audit_query
from servers.kit.visible import visible_text
from servers.models import AuditEvent, AuditHead, Identity, Server, ServerDraft
from servers.privacy.reading import record_soon
from sessions.calls.reading import context_of
from sessions.catalog import reading
from sessions.connections.diagnosis import explain
from sessions.connections.test_report import draft_context
from sessions.enums import CallState, LogSource
from sessions.live.frames import Frame, encode
from sessions.live.limits import size_of
from sessions.live.topics import Topic, TopicKind
from sessions.models import Call, LogLine, McpSession, WireMessage
from sessions.overview import rows as queries
from sessions.wire import rows as wire_rows

FEED_ROWS = 200
FEED_CHARS = 200_000
HTML_BYTES = 700_000
Row = dict[str, Any]


# --- feeds -----------------------------------------------------------------------------------------------------------
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
        return AuditHead.objects.filter(chain=1).values_list("seq", flat=True).first() or 0
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


# --- snapshots -------------------------------------------------------------------------------------------------------
ServerKey = tuple[UUID, UUID | None]  # the server, and a user's personal identity there


def server_frames(keys: list[ServerKey]) -> dict[ServerKey, Frame]:
    """Kind "session" of topics `server.<uid>`: the row, and the live part of the page's head."""
    uids, requested = {uid for uid, _ in keys}, set(keys)
    own = queries.own_sessions(uids) if any(identity for _, identity in keys) else []
    found: dict[ServerKey, tuple[Server, McpSession | None]] = {
        (server.uid, None): (server, session) for server, session in queries.servers_with_sessions(uids)
    }
    for session in own:
        session.server.seen_as = session.identity_id
        found[session.server.uid, session.identity.uid] = session.server, session
    return {key: _server_frame(Topic(TopicKind.SERVER, *key), *found[key]) for key in requested & found.keys()}


def _server_frame(topic: Topic, server: Server, session: McpSession | None) -> Frame:
    row = queries.server_row(server, session)
    explanation = explain(session.fault, session.fault_detail, server) if session and session.fault else None
    context = {"server": server, "mcp_session": session, "explanation": explanation}
    html = render_to_string("servers/_session.html", context)
    return Frame(encode(topic.name, row["version"], "session", [row], html), None, "session", row["version"])


def _seen(topic: Topic) -> Server | None:
    """The server as the listeners of this topic see it."""
    server = Server.objects.filter(uid=topic.row).first()
    if server is not None and topic.identity is not None:
        server.seen_as = server.identities.filter(uid=topic.identity).values_list("pk", flat=True).first() or 0
    return server


def catalog_frame(topic: Topic) -> Frame | None:
    server = _seen(topic)
    if server is None:
        return None
    row = queries.catalog_row(server) | reading.row(server)
    return Frame(encode(topic.name, None, "catalog", [row]), None, "catalog")


def server_call_frames(topic: Topic, call_uids: list[UUID] | None, since: datetime) -> list[Frame]:
    """Kind "call" of topics `server.<uid>`: one frame per changed call, without arguments and result.

    None: the newest calls created after `since`, for listeners that may have missed a hint.
    """
    calls = _calls_since(topic, since) if call_uids is None else queries.calls_by_uid(call_uids)
    own = None if topic.identity is None else Identity.objects.filter(uid=topic.identity).values_list("pk").first()
    return [
        Frame(encode(topic.name, None, "call", [_bare(queries.call_row(call))]), None, f"call.{call.uid}", call.version)
        for call in calls
        if call.server and call.server.uid == topic.row and ((call.identity_id,) if call.personal else None) == own
    ]


def _calls_since(topic: Topic, since: datetime) -> list[Call]:
    server = _seen(topic)
    return [] if server is None else queries.calls_since(server, since)


CallKey = tuple[UUID, bool]
#: fields of a call's row, and of a progress hint, that contain the server's text
_SERVERS_WORDS = frozenset({"progress_message", "message"})


def call_frames(keys: list[CallKey]) -> dict[CallKey, Frame]:
    """Topics `call.<uid>`, in one query. The flag requests a second rendering without arguments and result."""
    calls = {call.uid: call for call in queries.calls_by_uid({uid for uid, _ in keys})}
    return {key: _call_frame(calls[key[0]], key[1]) for key in keys if key[0] in calls}


def call_versions(uids: list[UUID]) -> dict[UUID, int]:
    return dict(Call.objects.filter(uid__in=uids).values_list("uid", "version"))


def _call_frame(call: Call, reserved_too: bool) -> Frame:
    row = queries.call_row(call)
    texts = _texts(call, reserved_too, call.version, "call", [row])
    found = call.result or call.late_result
    record = None if found is None else partial(record_soon, found=[found], context=context_of(call))
    final = CallState(call.state).final
    return Frame(*texts, "call", call.version, call.user_id, final, record_reading=record)


def progress_frame(call_uid: UUID, row: Row, reserved_too: bool) -> Frame | None:
    """The card with a progress that the row does not have yet. None once the call has ended."""
    call = next(iter(queries.calls_by_uid([call_uid])), None)
    if call is None or CallState(call.state).final:
        return None
    call.progress, call.progress_total, call.progress_message = row["progress"], row["total"], row["message"] or ""
    return Frame(*_texts(call, reserved_too, None, "progress", [row]), "progress", owner_id=call.user_id)


def _texts(call: Call, reserved_too: bool, seq: int | None, kind: str, rows: list[Row]) -> tuple[str, str | None]:
    topic = f"call.{call.uid}"
    full = encode(topic, seq, kind, rows, card_html(call, True))
    if not reserved_too:
        return full, None
    return full, encode(topic, seq, kind, [_bare(row) for row in rows], card_html(call, False))


def card_html(call: Call, may_read: bool) -> str:
    """Bounded by what one socket may buffer: a result whose markup is too large is shown as the start of its text."""
    context = {"call": call, "may_read": may_read}
    html = render_to_string("calls/_card.html", context)
    return html if size_of(html) <= HTML_BYTES else render_to_string("calls/_card.html", {**context, "brief": True})


def draft_frames(uids: list[UUID]) -> dict[UUID, Frame]:
    return {draft.uid: _draft_frame(draft) for draft in ServerDraft.objects.filter(uid__in=uids)}


def _draft_frame(draft: ServerDraft) -> Frame:
    row = {"uid": str(draft.uid), "version": draft.version, "state": draft.state}
    html = render_to_string("servers/_test.html", draft_context(draft))
    return Frame(encode(f"draft.{draft.uid}", draft.version, "draft", [row], html), None, "draft", draft.version)


def _bare(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in _SERVERS_WORDS}


# --- identity of the database ----------------------------------------------------------------------------------------
def epoch() -> str:
    """Identifies this database: pages drop their cursors if it changes (a restored backup, a new installation)."""
    first = AuditEvent.objects.order_by("seq").values_list("hash", flat=True).first()
    return (first or "empty")[:16]
