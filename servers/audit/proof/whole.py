"""What a verification of the whole log checks besides the links: signed statements, payloads, rows of calls."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count, Min

from servers.audit import payloads
from servers.audit.proof import checkpoints, key, removals, rows
from servers.audit.proof.key import KeyMissing
from servers.audit.proof.notes import NoteInvalid, PublicKey, Statement, opened, time_of
from servers.audit.proof.rows import Finding, Removed
from servers.audit.verdict import Broken
from servers.enums import AuditAction
from servers.models import AuditEvent, Checkpoint, Payload

#: bytes of payload content that are read at a time
_BYTES = 4 * 1024 * 1024
#: digests of this role name payloads that a person had erased
ERASED = "erased"
#: called with damage; raises it, unless the verification should continue after it
OnDamage = Callable[[Broken], None]
_Verified = Sequence[tuple[AuditEvent, dict[str, Any]]]


@dataclass
class Whole:
    """`outside`: statements of the checkpoint file that are not void, by event."""

    trusted: tuple[PublicKey, ...]
    cut: Statement | None
    restorations: list[Statement]
    outside: dict[int, list[Statement]]
    removed: Removed
    signed_seq: int = 0
    #: lowest event of those that the cut covers, while its rest is being removed
    first: int | None = None
    erasures: set[str] = field(default_factory=set)
    erased: dict[str, int] = field(default_factory=dict)
    #: events of the statements that were raised
    unfit: set[int] = field(default_factory=set)

    @classmethod
    def of_this_log(cls) -> "Whole":
        """Raises Broken when the signatures cannot be checked."""
        try:
            trusted = key.load().trusted
            cut, taken_back = checkpoints.newest_cut(), checkpoints.restorations()
            outside: dict[int, list[Statement]] = {}
            for one in checkpoints.outside():
                if not checkpoints.void(one, taken_back):
                    outside.setdefault(one.seq, []).append(one)
            removed = Removed(removals.allowed("calls"), removals.allowed("payloads"), _until(cut))
        except (KeyMissing, OSError) as exc:
            raise Broken(None, f"The signed checkpoints cannot be checked. {exc}") from exc
        return cls(trusted, cut, taken_back, outside, removed, cut.seq if cut is not None else 0)

    def beginning(self, meet: OnDamage) -> tuple[int, str | None]:
        """Number of the first event that must exist, and the hash that it must name. An interrupted cut leaves the last
        of the events that it covers: whatever the first of these names, the others lead to the signed hash."""
        if self.cut is None:
            return 1, ""
        for row in Checkpoint.objects.filter(seq__lte=self.cut.seq).order_by("seq"):
            if self._opened(row) is None:
                meet(self._forged(row))
        left = AuditEvent.objects.filter(seq__lte=self.cut.seq).aggregate(first=Min("seq"), count=Count("seq"))
        first = self.first = left["first"]
        if first is None:
            return self.cut.seq + 1, self.cut.hash
        if left["count"] != self.cut.seq - first + 1 or first < int(self.cut.more.get("first", 1)):
            words = f"Event {first} does not belong to the log, which begins after event {self.cut.seq}."
            meet(Broken(first, words))
        return first, None

    def renew(self) -> bool:
        """Whether retention has signed anything since: then what seems to be missing is checked again."""
        before, self.removed = self.removed, Whole.of_this_log().removed
        return self.removed != before

    def overtaken(self, broken: Broken) -> bool:
        """Whether a cut that was signed or went on since removed the event."""
        cut = Whole.of_this_log().cut
        if cut is None or broken.seq is None or broken.seq > cut.seq:
            return False
        if cut != self.cut:
            return True
        left = AuditEvent.objects.filter(seq__lte=self.cut.seq) if self.cut is not None else AuditEvent.objects.none()
        return self.first is not None and left.aggregate(first=Min("seq"))["first"] != self.first

    def check(self, events: _Verified) -> None:
        """Check events whose links are valid, in order. Raises Broken for the first that does not fit."""
        found = [self._statements(events), self._payloads(events)]
        found += [check.of_events(events, self.removed) for check in rows.checks()]
        misfits = [one for one in found if one is not None]
        if misfits:
            first = min(misfits, key=lambda one: one.seq or 0)
            if first.statement is not None:
                self.unfit.add(first.statement)  # it may name an earlier event: behind that it would be found again
            raise Broken(first.seq, first.words)

    def finish(self, meet: OnDamage, report: Callable[[], None]) -> None:
        """After the last event."""
        self._beyond(meet)
        unsaid = {digest: seq for digest, seq in self.erased.items() if digest not in self.erasures}
        if unsaid:
            self.renew()
        for seq in unsaid.values():
            event = AuditEvent.objects.filter(seq=seq).first()
            if event is not None and not self._may_be_gone(event):
                meet(Broken(seq, f"A payload of event {seq} was erased, and no event says so."))
        for check in rows.checks():
            for found in check.unrecorded(self._removed_now, report):
                meet(Broken(found.seq, found.words))

    def _removed_now(self) -> Removed:
        self.renew()
        return self.removed

    # --- signed statements ----------------------------------------------------------------------------------------------
    def _statements(self, events: _Verified) -> Finding | None:
        hashes = {event.seq: event.hash for event, _ in events}
        first, last = events[0][0].seq, events[-1][0].seq
        known = [one for seq in range(first, last + 1) for one in self.outside.get(seq, ())]
        for row in Checkpoint.objects.filter(seq__gte=first, seq__lte=last).order_by("seq"):
            one = self._opened(row)
            if one is None:
                return Finding(row.seq, str(self._forged(row)))
            known.append(one)
        for one in sorted(known, key=lambda one: one.seq):
            if one.seq in self.unfit or checkpoints.void(one, self.restorations):
                continue
            if one.hash != hashes[one.seq]:
                words = f"Event {one.seq} is not the one that was signed at {checkpoints.spoken(one.at)}."
                return Finding(min(self.signed_seq + 1, one.seq), words, one.seq)
            self.signed_seq = max(self.signed_seq, one.seq)
        return None

    def _opened(self, row: Checkpoint) -> Statement | None:
        try:
            one = opened(row.note, self.trusted)
        except (NoteInvalid, TypeError, AttributeError):
            return None
        return one if (one.seq, one.hash, one.kind) == (row.seq, row.hash, row.kind) else None

    def _forged(self, row: Checkpoint) -> Broken:
        if row.key_id in {known.id.hex() for known in self.trusted}:
            return Broken(row.seq, f"The checkpoint of event {row.seq} in the database was forged or changed.")
        return Broken(
            row.seq,
            f"The checkpoint of event {row.seq} in the database was signed with key {row.key_id}, which the key file {settings.CHECKPOINT_KEY_FILE} does not name. Either it was forged, or the key file is not that of this log: restore it from your backup, or run {settings.PROGRAM} checkpoint_key --replace.",
        )

    def _beyond(self, meet: OnDamage) -> None:
        """Statements about events that the log does not have. The log may have grown since; it never shrinks."""
        newest = Checkpoint.objects.order_by("-seq").first()
        known = [one for ones in self.outside.values() for one in ones]
        last = checkpoints.head()[0]
        if newest is not None and newest.seq > last:
            one = self._opened(newest)
            if one is None:
                meet(self._forged(newest))
            else:
                known.append(one)
        lost = [one for one in known if one.seq > last and not checkpoints.void(one, self.restorations)]
        if lost:
            most = max(lost, key=lambda one: one.seq)
            words = f"The log ends at event {last}. The checkpoint signed at {checkpoints.spoken(most.at)} says that it had {most.seq:,} events."
            meet(Broken(last + 1, words))

    # --- payloads -------------------------------------------------------------------------------------------------------
    def _payloads(self, events: _Verified) -> Finding | None:
        named: dict[str, tuple[AuditEvent, str]] = {}
        for event, body in events:
            for role, digest in (body["digests"] or {}).items():
                if role == ERASED:
                    self.erasures.add(digest)
                else:
                    named.setdefault(digest, (event, role))
        found: list[Finding] = []
        missing = set(named)
        for digest, words in self._stored(named):
            missing.discard(digest)
            event, role = named[digest]
            if words == ERASED:
                if not self._may_be_gone(event) and not self._may_be_erased(event, role):
                    self.erased[digest] = event.seq
            elif words:
                found.append(Finding(event.seq, f"The {role} of event {event.seq} {words}."))
        for digest in missing:
            event, role = named[digest]
            if not self._may_be_gone(event):
                found.append(Finding(event.seq, f"The {role} of event {event.seq} is missing."))
        return min(found, key=lambda one: one.seq or 0, default=None)

    def _may_be_gone(self, event: AuditEvent) -> bool:
        """The time of the request decides: removed parts of a call may be newer than the time that the statement
        names."""
        if self.removed.payloads is None:
            return False
        before = self.removed.payloads + rows.TOLERANCE
        if event.at < before:
            return True
        requested = _requested(event)
        return self.removed.cut_until is not None if requested is None else requested < before

    def _may_be_erased(self, event: AuditEvent, role: str) -> bool:
        """Whether an event that was cut may have erased it: for arguments whose request was cut too."""
        return self.removed.cut_until is not None and role == "arguments" and _requested(event) is None

    def _stored(self, named: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """For each stored payload, its digest and what is wrong: nothing, ERASED, or a message."""
        batch: list[tuple[int, str]] = []
        size = 0
        sizes = Payload.objects.filter(digest__in=named).values_list("pk", "digest", "size")
        for pk, digest, one in [*sizes, (0, "", _BYTES + 1)] if named else []:
            if batch and (pk == 0 or size + _number(one) > _BYTES):
                try:
                    found = {row.pk: row for row in Payload.objects.filter(pk__in=[key for key, _ in batch])}
                except Exception:  # whatever the driver or a field raises for a value that it cannot convert
                    found = {}
                yield from ((stored, _wrong(key, found.get(key))) for key, stored in batch)
                batch, size = [], 0
            batch.append((pk, digest))
            size += _number(one)


def _requested(event: AuditEvent) -> datetime | None:
    """When the call of an event was requested; the time of the event if there is no call. None: the request was cut."""
    if event.call_uid is None:
        return event.at
    of_call = AuditEvent.objects.filter(call_uid=event.call_uid, action=AuditAction.CALL_REQUEST)
    return of_call.order_by("seq").values_list("at", flat=True).first()


def _wrong(pk: int, row: Payload | None) -> str:
    try:
        row = row or Payload.objects.get(pk=pk)
        if row.erased_at is not None:
            return (
                ERASED
                if not (row.text or row.blob or row.sealed or row.salt)
                else "is marked as erased but is still stored"
            )
        text = payloads.read(row) or ""
        if payloads.intact(row) and len(text.encode("utf-8", "surrogatepass")) == row.size:
            return ""
    except Exception:  # as above
        return "cannot be read"
    return "was changed"


def _number(size: Any) -> int:
    return size if isinstance(size, int) else 0


def _until(cut: Statement | None) -> datetime | None:
    try:
        return time_of(cut.more["until"]) if cut is not None else None
    except (KeyError, ValueError):
        return None
