"""Keeps the full-text index: a cursor over the audit log, which names each call that ended and each other event in the
order of their commits. So nothing is missed, and the path of a call does no more than before.

A batch is read outside a transaction and written in a short one. Several workers may try; the first to move the cursor
wins.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial, reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, ExpressionWrapper, Min, Q, QuerySet
from django.utils import timezone

from servers.audit import payloads
from servers.audit import query as audit
from servers.audit.batches import Batches, in_turn
from servers.enums import AuditAction
from servers.models import AuditEvent, Payload
from servers.sql import database
from sessions.explorer import fulltext
from sessions.explorer.fulltext import Document, words_of
from sessions.explorer.rows import Unindexed
from sessions.explorer.streams import tag
from sessions.models import Call, IndexCursor

NAME = "search"
#: up to this event, the words of erased payloads are gone from the database file
PURGED = "purged"
BATCH = 300
#: characters that one transaction writes: other writers wait as long as it takes
BATCH_CHARS = 128 * 1024
#: a worker looks for new events every few seconds: newer ones are not a backlog
USUAL_LAG = timedelta(seconds=10)
#: portions of a merge after one batch, which itself makes about ten due; of a large merge, later batches do the rest
PORTIONS = 50
_LINKS = ("arguments", "result", "late_result")
_KINDS = ("server_id", "user_id", "state", "way", "method")
_NAMES = ("target", "server_name", "user_name", "identity_name")
_WORDS = ("error_message", "error_data", "detail", "schema_violation")
_COMPRESSED = reduce(or_, (Q(**{f"{link}__blob__isnull": False}) for link in _LINKS))
_ERASED = reduce(or_, (Q(**{f"{link}__erased_at__isnull": False}) for link in _LINKS))


@dataclass
class Batch:
    """What the events after `before` up to `after` add to the index. `more`: others wait for the next batch."""

    before: int
    after: int
    more: bool = False
    calls: list[Document] = field(default_factory=list)
    events: list[Document] = field(default_factory=list)


def next_batch() -> Batch | None:
    """None when the index is up to date. Only reads."""
    before = _cursor()
    steps = list(
        AuditEvent.objects.filter(seq__gt=before).order_by("seq").values_list("seq", "action", "call_uid")[:BATCH]
    )
    if not steps:
        return None
    ended = {uid for _, action, uid in steps if action == AuditAction.CALL_FINISH and uid is not None}
    calls = _documents(ended)
    others = [seq for seq, action, _ in steps if not action.startswith("call:")]
    events = AuditEvent.objects.in_bulk(others)
    batch = Batch(before, before, more=len(steps) == BATCH)
    written: set[UUID] = set()
    chars = 0
    for seq, action, uid in steps:
        document = None
        if action == AuditAction.CALL_FINISH and uid in calls and uid not in written:
            document = calls[uid]
            batch.calls.append(document)
            written.add(uid)
        elif seq in events:
            document = _event_document(events[seq])
            batch.events.append(document)
        batch.after = seq
        chars += 0 if document is None else len(document.names) + len(document.words)
        if chars > BATCH_CHARS:
            batch.more = True
            break
    return batch


def write(batch: Batch) -> bool:
    """Runs in the caller's transaction. False: another process was faster, and nothing was written."""
    IndexCursor.objects.get_or_create(name=NAME)
    if not IndexCursor.objects.filter(name=NAME, seq=batch.before).update(seq=batch.after):
        return False
    fulltext.write("calls", batch.calls)
    fulltext.write("events", batch.events)
    read = [document.key for document in batch.calls]
    calls_erased(list(Call.objects.filter(_ERASED, pk__in=read).order_by().values_list("pk", flat=True)))
    return True


def reach(seq: int, on_batch: Callable[[], None]) -> None:
    """Index the audit log up to the event `seq`, taking turns with calls and with workers that do the same."""
    while (batch := next_batch()) is not None and batch.before < seq:
        in_turn(partial(write, batch), durable=False)
        merge()
        on_batch()


def merge() -> None:
    """Merge segments of the index, in short transactions between which calls go first."""
    for _ in range(PORTIONS if fulltext.in_parts() else 0):
        if not in_turn(fulltext.merge, durable=False):
            return


def unindexed() -> Unindexed | None:
    """What searches miss because it is not indexed yet; None if that is no more than usual."""
    before = _cursor()
    first = AuditEvent.objects.filter(seq__gt=before).order_by("seq").values_list("at", flat=True).first()
    if first is None or first > timezone.now() - USUAL_LAG:
        return None
    return Unindexed(audit.head_seq() - before, first)


def _cursor(name: str = NAME) -> int:
    """The number of the last indexed event."""
    return IndexCursor.objects.filter(name=name).values_list("seq", flat=True).first() or 0


def _calls(which: Q) -> QuerySet[Call]:
    """Calls with everything that `document_of` reads."""
    read = [f"{link}__{column}" for link in _LINKS for column in ("text", "blob", "sealed", "erased_at")]
    return Call.objects.filter(which).select_related(*_LINKS).only("uid", *_KINDS, *_NAMES, *_WORDS, *read)


def _documents(ended: Collection[UUID]) -> dict[UUID, Document]:
    """The documents of these calls. Few have compressed content; for the others, no model objects are created, which
    would cost more than indexing. Encrypted and erased content has no text."""
    if not ended:
        return {}
    texts = [f"{link}__text" for link in _LINKS]
    rows = (
        Call.objects.filter(uid__in=ended)
        .annotate(compressed=ExpressionWrapper(_COMPRESSED, BooleanField()))
        .order_by()
    )
    found, others = {}, []
    for uid, pk, compressed, *values in rows.values_list("uid", "pk", "compressed", *_KINDS, *_NAMES, *_WORDS, *texts):
        if compressed:
            others.append(uid)
            continue
        kinds, names = values[: len(_KINDS)], values[len(_KINDS) : len(_KINDS + _NAMES)]
        words, contents = values[len(_KINDS + _NAMES) : -len(texts)], values[-len(texts) :]
        found[uid] = _document(pk, kinds, names, words, [words_of(text) for text in contents if text])
    if others:
        found |= {call.uid: document_of(call) for call in _calls(Q(uid__in=others))}
    return found


# --- documents -------------------------------------------------------------------------------------------------------
def document_of(call: Call) -> Document:
    kinds, names, words = ([getattr(call, name) for name in part] for part in (_KINDS, _NAMES, _WORDS))
    contents = [_payload_words(payload) for payload in (call.arguments, call.result, call.late_result) if payload]
    return _document(call.pk, kinds, names, words, contents)


def _document(
    key: int, kinds: Sequence[Any], names: Sequence[str], words: Sequence[str], contents: Sequence[str]
) -> Document:
    server, user, *others = kinds
    tags = (f"server{server or 0}", f"user{user or 0}", *map(tag, others))
    text = "\n".join(filter(None, (*words, *contents)))
    return Document(key, " ".join(tags), "\n".join(names), text[: 2 * fulltext.WORDS_CHARS])


def _payload_words(payload: Payload) -> str:
    try:
        text = payloads.read(payload) if payloads.indexable(payload) else None
    except payloads.DAMAGED:  # a verification will find it; here it must not keep all later calls out of the index
        text = None
    return words_of(text or "")


def _event_document(event: AuditEvent) -> Document:
    parts = (
        audit.action_word(event.action),
        event.subject,
        event.server_name,
        event.actor_name,
        event.identity_name,
        event.ip,
        event.request_id,
        words_of(json.dumps(audit.readable_body(event)["details"], ensure_ascii=False)),
    )
    return Document(event.seq, "", "\n".join(filter(None, parts)))


# --- what goes -------------------------------------------------------------------------------------------------------
def calls_erased(keys: Collection[int]) -> None:
    """Call in the transaction that erases payloads of these calls: their words leave the index with them.

    A batch with these words may have been read but not written yet. It is either written before, or notices the
    erasure.
    """
    if not keys:
        return
    list(IndexCursor.objects.select_for_update().filter(name=NAME))
    marks = ", ".join(["%s"] * len(keys))
    with database().cursor() as cursor:
        cursor.execute(_EMPTY.format(marks), list(keys))
        empty = [int(row[0]) for row in cursor.fetchall()]
    fulltext.keep_names(empty)
    if others := set(keys).difference(empty):
        fulltext.write("calls", [document_of(call) for call in _calls(Q(pk__in=others))])


#: calls of which only names can still be found
_EMPTY = (
    f"SELECT one.id FROM {Call._meta.db_table} one WHERE one.id IN ({{}}) AND one.detail = '' AND NOT EXISTS (SELECT 1 FROM "  # noqa: S608  # names of our own models
    f"{Payload._meta.db_table} content WHERE content.id IN (one.arguments_id, one.result_id, one.late_result_id) "
    "AND content.erased_at IS NULL)"
)


def trim(on_batch: Callable[[], None] = lambda: None) -> None:
    """Remove calls and events that retention deleted, in short transactions."""
    oldest_call = Call.objects.aggregate(key=Min("pk"))["key"]
    oldest_event = AuditEvent.objects.aggregate(key=Min("seq"))["key"]
    for stream, oldest in (("calls", oldest_call), ("events", oldest_event)):
        batches, end = Batches(), 2**62 if oldest is None else oldest
        while keys := fulltext.before(stream, end, batches.size):
            batches.each(keys, partial(fulltext.forget, stream))
            merge()
            on_batch()


def purge(on_portion: Callable[[], None] = lambda: None) -> None:
    """After payloads were erased at a person's request: merge the whole index, in short transactions. On SQLite, deleted
    words stay in the file until then, although no search finds them."""
    if not fulltext.in_parts():
        return
    erased = AuditEvent.objects.filter(action=AuditAction.PAYLOAD_ERASE).order_by("-seq").values_list("seq", flat=True)
    newest = erased.first()
    if newest is None or newest <= _cursor(PURGED):
        return
    more = in_turn(partial(fulltext.merge, all_parts=True), durable=False)
    while more:
        on_portion()
        more = in_turn(fulltext.merge, durable=False)
    in_turn(partial(IndexCursor.objects.update_or_create, name=PURGED, defaults={"seq": newest}))
