"""The lines of an export (docs/audit-proof.md): written in order, each ended by a newline."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from django.conf import settings
from django.db.models import Max
from django.utils import timezone

from servers.audit import payloads as stored
from servers.audit.proof import checkpoints, file, key, removals, rows
from servers.audit.proof.notes import EMPTY_HASH, Statement, signed, stamp
from servers.audit.proof.whole import ERASED
from servers.audit.verdict import Broken
from servers.audit.verify import columns_fit
from servers.enums import AuditAction, StatementKind
from servers.models import AuditEvent, Checkpoint, Payload

FORMAT = 1


class ExportLines:
    """One export: `head()`, then `lines()` of each batch of events, then `end()`. Raises KeyMissing without the
    checkpoint key. `payloads`: with arguments and results, for those who may read them. `after`: the events up to this
    one are in earlier files.
    """

    def __init__(self, *, filtered: bool, filter_text: str = "", payloads: bool = False, after: int = 0) -> None:
        self._filtered, self._filter_text, self._payloads = filtered, filter_text, payloads
        self._after = after
        self._key = key.load()
        self._restored = _newest(StatementKind.RESTORED)
        #: no verifier expects payloads of events older than this
        self._removed = removals.allowed("payloads")
        #: read before the log's end: one that is signed meanwhile would be about an event beyond it
        self._outside = checkpoints.outside()
        #: number of the last event of a whole export: the log's end when this object was created
        self.last_seq, self._hash = checkpoints.head()
        self._cut = checkpoints.newest_cut()
        self._hashes, self._count = hashlib.sha256(), 0
        self._lines = hashlib.sha256()  # of the file as it is written
        #: the event that was written last: the next one follows it, unless a cut removed it meanwhile
        self._reached = max(after, self._cut.seq if self._cut is not None else 0)
        self._overtaken = False
        #: digests whose payload was written, by call: after the end of a call, hardly any event names them again
        self._written: dict[Any, set[str]] = {}
        self._notes: set[str] = set()
        #: digests of erased payloads, and of those whose erasure an event of this export reports
        self._erased: set[str] = set()
        self._erasures: set[str] = set()

    def head(self) -> Iterator[str]:
        """Header, cut, checkpoints."""
        return self._signed(self._head())

    def _head(self) -> Iterator[str]:
        yield _line(
            type="header",
            format=FORMAT,
            filtered=self._filtered,
            filter=self._filter_text,
            **({"after": self._after} if self._after else {}),
            payloads=self._payloads,
            calls=True,
            origin=self._key.public.name,
            product=f"mcpadmin {settings.VERSION}",
            exported_at=stamp(timezone.now()),
            seq=self.last_seq,
            hash=self._hash or EMPTY_HASH,
            keys=[known.text for known in self._key.trusted],
        )
        cut = self._cut
        # includes the checkpoint of the event before the first, which says what the first has to follow
        first = max(self._after, cut.seq + 1 if cut is not None else 1)
        others = Checkpoint.objects.filter(kind__in=[StatementKind.REMOVAL, StatementKind.RESTORED])
        regular = Checkpoint.objects.filter(kind=StatementKind.REGULAR, seq__gte=first, seq__lte=self.last_seq)
        signed_here = [one for some in (others, regular) for one in checkpoints.statements(some.order_by("seq"))]
        for one in [*([cut] if cut is not None else []), *signed_here, *self._outside]:
            if one.note not in self._notes and (one.kind != StatementKind.CUT or one is cut):
                self._notes.add(one.note)
                yield file.line(one.kind, one.note)

    @property
    def outdated(self) -> bool:
        """Whether events were removed before they were written, or an event that is not in this file erased a payload.
        The statements before the end account for everything else that retention removes."""
        cut_off = not self._filtered and (self._overtaken or self._reached < self.last_seq)
        if cut_off and checkpoints.newest_cut() != self._cut:
            return True
        return _newest(StatementKind.RESTORED) != self._restored or self._erased_meanwhile()

    def _erased_meanwhile(self) -> bool:
        """Whether a person had a payload erased by an event after those in this file. In a filtered file, no event is
        expected to report it."""
        unsaid = set[str]() if self._filtered else self._erased - self._erasures
        later = AuditEvent.objects.filter(action=AuditAction.PAYLOAD_ERASE, seq__gt=self.last_seq)
        return bool(unsaid) and any(
            digest in unsaid for event in later.iterator() for _, digest in _digests(_body(event))
        )

    def lines(self, events: Sequence[AuditEvent]) -> Iterator[str]:
        """The lines of events that follow the previous ones by number, each followed by its payloads and its call."""
        return self._signed(self._event_lines(events))

    def _event_lines(self, events: Sequence[AuditEvent]) -> Iterator[str]:
        bodies = [_body(event) for event in events]
        calls: dict[Any, dict[str, Any]] = {}
        for check in rows.checks():
            calls |= check.exported(events, self.last_seq)
        small: dict[str, Payload] = {}
        if self._payloads:
            # Large ones are read one by one, so that a batch needs no more memory than the largest payload.
            named = {digest for body in bodies for _, digest in _digests(body)}
            payloads = Payload.objects.filter(digest__in=named, size__lte=settings.INLINE_PAYLOAD_BYTES)
            small = {row.digest: row for row in payloads}
        for event, body in zip(events, bodies, strict=True):
            self._hashes.update(event.hash.encode())
            self._count += 1
            self._overtaken |= event.seq > self._reached + 1
            self._reached = event.seq
            line: dict[str, Any] = {"type": "event", "seq": event.seq, "hash": event.hash, "body": event.body}
            if not _fits(event, body):
                line["columns"] = _columns(event)
            yield _line(**line)
            if self._payloads:
                yield from self._payload_lines(event, body, small)
            if (call := calls.get(event.call_uid)) is not None and event.action == "call:tool:request":
                yield _line(type="call", **call)

    def _payload_lines(self, event: AuditEvent, body: dict[str, Any], small: dict[str, Payload]) -> Iterator[str]:
        written = self._written.setdefault(event.call_uid, set())
        for role, digest in _digests(body):
            if role == ERASED:
                self._erasures.add(digest)
                continue
            if digest in written:
                continue
            written.add(digest)
            row = small.get(digest) or Payload.objects.filter(digest=digest).first()
            if row is not None:
                if row.erased_at is not None and (self._removed is None or event.at >= self._removed):
                    self._erased.add(digest)
                yield _payload_line(row)
        if not written or event.action == AuditAction.CALL_FINISH:
            del self._written[event.call_uid]

    def _signed(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass lines on, and add them to what the signature at the end covers."""
        for line in lines:
            self._lines.update(line.encode("utf-8", "surrogatepass"))
            yield line

    def end(self) -> Iterator[str]:
        """What retention signed while the events were written, and the signature."""
        later = checkpoints.statements(Checkpoint.objects.filter(kind=StatementKind.REMOVAL).order_by("seq"))
        yield from self._signed(file.line(one.kind, one.note) for one in later if one.note not in self._notes)
        digest, lines = (b64encode(found.digest()).decode() for found in (self._hashes, self._lines))
        more = {"events": str(self._count), "digest": digest, "lines": lines}
        seq, head_hash = (self.last_seq, self._hash) if self.last_seq else (0, EMPTY_HASH)
        statement = Statement(StatementKind.EXPORT, seq, head_hash, timezone.now(), more)
        yield _line(type="end", note=signed(statement, self._key.private, self._key.public))


def _newest(kind: StatementKind) -> int | None:
    newest: int | None = Checkpoint.objects.filter(kind=kind).aggregate(newest=Max("pk"))["newest"]
    return newest


def _line(**members: Any) -> str:
    """Nothing in an event can end a line or control a terminal: control characters are escaped."""
    text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED) + "\n"


#: characters that JSON does not escape: those that some readers treat as the end of a line, and other control
#: characters
_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def _payload_line(row: Payload) -> str:
    if row.erased_at is not None:
        return _line(type="payload", digest=row.digest, erased=True)
    salt = b64encode(bytes(row.salt)).decode()
    try:
        text = stored.read(row) or ""
    except Exception:  # whatever was done to it: without content, no verifier accepts the line
        return _line(type="payload", digest=row.digest, salt=salt)
    data = text.encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return _line(type="payload", digest=row.digest, salt=salt, blob=b64encode(data).decode())
    return _line(type="payload", digest=row.digest, salt=salt, text=text)


def _body(event: AuditEvent) -> dict[str, Any]:
    try:
        body = json.loads(event.body)
    except (ValueError, TypeError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _digests(body: dict[str, Any]) -> list[tuple[str, str]]:
    digests = body.get("digests")
    return [one for one in digests.items() if isinstance(one[1], str)] if isinstance(digests, dict) else []


def _fits(event: AuditEvent, body: dict[str, Any]) -> bool:
    try:
        return columns_fit(event, body)
    except (Broken, KeyError, TypeError, AttributeError):
        return False


def _columns(event: AuditEvent) -> dict[str, Any]:
    fields = (field.attname for field in AuditEvent._meta.concrete_fields if field.attname not in ("body", "hash"))
    return {name: None if (value := getattr(event, name)) is None else str(value) for name in fields}
