"""The frames of calls: topics `call.<uid>`, and kind "call" of topics `server.<uid>`. For reader threads only."""

from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.template.loader import render_to_string

from servers.models import Identity
from servers.privacy.payload_readings import record_soon
from sessions.calls.payload_readings import context_of
from sessions.enums import CallState
from sessions.live.frames import Frame, encode
from sessions.live.limits import size_of
from sessions.live.server_frames import server_as_seen
from sessions.live.topics import Topic
from sessions.models import Call
from sessions.overview import rows as queries

HTML_BYTES = 700_000
Row = dict[str, Any]
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
    return Frame(*texts, "call", call.version, call.user_id, final, record_reading=record, confidential=True)


def progress_frame(call_uid: UUID, row: Row, reserved_too: bool) -> Frame | None:
    """The card with progress that is not in the row yet. None once the call has ended."""
    call = next(iter(queries.calls_by_uid([call_uid])), None)
    if call is None or CallState(call.state).final:
        return None
    call.progress, call.progress_total, call.progress_message = row["progress"], row["total"], row["message"] or ""
    texts = _texts(call, reserved_too, None, "progress", [row])
    return Frame(*texts, "progress", owner_id=call.user_id, confidential=True)


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
    server = server_as_seen(topic)
    return [] if server is None else queries.calls_since(server, since)


def _bare(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in _SERVERS_WORDS}
