"""Seeded changes that someone with write access to the database, or to an export, makes behind our back.

Each names the first bad event as it must be found: a number, or None where no event is to blame. `FIRST` is where a log begins.
"""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db import connection

from servers.enums import PayloadKind
from servers.models import AuditEvent, AuditHead, Checkpoint, Payload
from sessions.models import Call


@dataclass(frozen=True)
class Change:
    """`seq`: the first bad event; `among`: others that would be right too. `exported`: an export of the database shows it."""

    name: str
    seq: int | None
    among: tuple[int | None, ...] = ()
    exported: bool = True

    def right(self, found: object) -> bool:
        return found == self.seq or found in self.among


def sql(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def seqs() -> list[int]:
    return list(AuditEvent.objects.order_by("seq").values_list("seq", flat=True))


def _set(seq: int, column: str, value: Any) -> None:
    sql(f"UPDATE servers_auditevent SET {column} = %s WHERE seq = %s", value, seq)  # noqa: S608  # columns of this file


# --- events -------------------------------------------------------------------------------------------------------------
def flip(dice: random.Random) -> Change:
    seq = dice.choice(seqs())
    column = dice.choice(["body", "hash"])
    text = getattr(AuditEvent.objects.get(seq=seq), column)
    place = dice.randrange(len(text))
    _set(seq, column, text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :])
    return Change(f"one bit of the {column} of {seq}", seq)


def project(dice: random.Random) -> Change:
    seq = dice.choice(seqs())
    column, value = dice.choice(
        [
            ("action", "server:session:open"), ("outcome", "denied"), ("actor_id", 99), ("actor_name", "eve"),
            ("server_name", "other"), ("identity_name", "mine"), ("subject", "tool x"), ("ip", "192.0.2.99"),
            ("request_id", "r-9"), ("at", "2001-01-01 00:00:00+00:00"), ("call_uid", str(uuid4())), ("server_uid", str(uuid4())),
        ]
    )  # fmt: skip
    if connection.vendor == "sqlite":
        value = value.replace("-", "") if column.endswith("_uid") else str(value).removesuffix("+00:00")
    _set(seq, column, value)
    return Change(f"column {column} of {seq}", seq)


def delete(dice: random.Random) -> Change:
    seq = dice.choice(seqs())
    sql("DELETE FROM servers_auditevent WHERE seq = %s", seq)
    return Change(f"deleted {seq}", seq)


def delete_range(dice: random.Random) -> Change:
    first, last = sorted(dice.sample(seqs(), 2))
    sql("DELETE FROM servers_auditevent WHERE seq BETWEEN %s AND %s", first, last)
    return Change(f"deleted {first} to {last}", first)


def swap(dice: random.Random) -> Change:
    one, other = sorted(dice.sample(seqs(), 2))
    for old, new in ((one, -7), (other, one), (-7, other)):
        sql("UPDATE servers_auditevent SET seq = %s WHERE seq = %s", new, old)
    return Change(f"swapped {one} and {other}", one)


def insert(dice: random.Random) -> Change:
    """An event before the log, after it, or with all later ones moved up by one."""
    known = seqs()
    row = AuditEvent.objects.get(seq=dice.choice(known))
    where = dice.choice(["before", "after", "between"])
    if where == "between":
        at = dice.choice(known[1:])
        for seq in reversed([seq for seq in known if seq >= at]):
            sql("UPDATE servers_auditevent SET seq = %s WHERE seq = %s", seq + 1, seq)
        row.seq = at
        row.save(force_insert=True)
        return Change(f"inserted at {at}", at, (at + 1,))
    row.seq = known[0] - 1 if where == "before" else known[-1] + 1
    row.save(force_insert=True)
    return Change(f"inserted {where}", row.seq, exported=where == "before")  # an export ends with the head


def truncate_front(dice: random.Random) -> Change:
    known = seqs()
    last = dice.choice(known[:-1])
    sql("DELETE FROM servers_auditevent WHERE seq <= %s", last)
    return Change(f"front up to {last}", known[0])


def truncate_tail(dice: random.Random) -> Change:
    """Together with the head, and mostly with the checkpoints in the database."""
    known = seqs()
    last = dice.choice(known[:-1])
    end = AuditEvent.objects.get(seq=last)
    sql("DELETE FROM servers_auditevent WHERE seq > %s", last)
    AuditHead.objects.update(seq=last, hash=end.hash)
    if dice.random() < 0.8:
        Checkpoint.objects.filter(seq__gt=last).delete()
    Call.objects.exclude(uid__in=AuditEvent.objects.exclude(call_uid=None).values("call_uid")).delete()
    return Change(f"tail after {last}", last + 1)


def delete_all(dice: random.Random) -> Change:
    first = seqs()[0]
    sql("DELETE FROM servers_auditevent")
    Call.objects.all().delete()
    if dice.random() < 0.7:
        AuditHead.objects.all().delete()
    if dice.random() < 0.7:
        Checkpoint.objects.all().delete()
    return Change("all deleted", 1, (first,))


def rebuild(dice: random.Random) -> Change:
    """A new body for one event, and right hashes for it and all that follow, the head included. No key, so no signatures."""
    known = seqs()
    victim = dice.choice(known)
    prev: str | None = None
    for event in AuditEvent.objects.order_by("seq").filter(seq__gte=victim):
        body = json.loads(event.body)
        if event.seq == victim:
            body["ip"] = ""
            body["actor"]["ip"] = event.ip = "192.0.2.66"
            del body["ip"]
        else:
            body["prev"] = prev
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        prev = hashlib.sha256(text.encode()).hexdigest()
        sql(
            "UPDATE servers_auditevent SET body = %s, hash = %s, ip = %s WHERE seq = %s",
            text,
            prev,
            event.ip,
            event.seq,
        )
    AuditHead.objects.update(hash=prev)
    signed = [0, *Checkpoint.objects.order_by("seq").values_list("seq", flat=True)]
    if dice.random() < 0.8:  # then those in the file are left
        Checkpoint.objects.filter(kind="regular").delete()
    return Change(f"rebuilt from {victim}", max(seq for seq in signed if seq < victim) + 1)


# --- beside the log -----------------------------------------------------------------------------------------------------
def _named(digest: str) -> int:
    return int(AuditEvent.objects.filter(body__contains=digest).order_by("seq").values_list("seq", flat=True)[0])


def edit_payload(dice: random.Random) -> Change:
    bodies = " ".join(AuditEvent.objects.values_list("body", flat=True))
    row = dice.choice([row for row in Payload.objects.order_by("pk") if row.digest in bodies])
    seq = _named(row.digest)
    how = dice.choice(["text", "salt", "digest", "gone", "blob", "erased"])
    if how == "text":
        Payload.objects.filter(pk=row.pk).update(text=row.text.replace('"', "'", 1))
    elif how == "salt":
        Payload.objects.filter(pk=row.pk).update(salt=bytes(row.salt)[::-1])
    elif how == "digest":
        Payload.objects.filter(pk=row.pk).update(digest="0" * 64)
    elif how == "blob":
        Payload.objects.filter(pk=row.pk).update(blob=b"no zlib", text="")
    elif how == "erased":
        Payload.objects.filter(pk=row.pk).update(text="", salt=b"", erased_at=row.created_at)
    else:
        sql(
            "DELETE FROM servers_payload WHERE id = %s", row.pk
        ) if connection.vendor == "sqlite" else Payload.objects.filter(pk=row.pk).update(digest="1" * 64)
    return Change(f"{how} of a payload of {seq}", seq, _of_call_with(row))


def _of_call_with(row: Payload) -> tuple[int, ...]:
    """A call whose reference lost its row is found too."""
    found = AuditEvent.objects.filter(body__contains=row.digest).values_list("seq", flat=True)
    return tuple(found)


def edit_call(dice: random.Random) -> Change:
    call = Call.objects.get(pk=dice.choice(list(Call.objects.values_list("pk", flat=True))))
    known = {row.action: row.seq for row in AuditEvent.objects.filter(call_uid=call.uid)}
    request, sent, finish = (known.get(f"call:tool:{word}") for word in ("request", "send", "finish"))
    rows = Call.objects.filter(pk=call.pk)
    other = Payload.objects.exclude(pk__in=[call.arguments_id, call.result_id]).filter(kind=PayloadKind.RESULT).first()
    late = timedelta(seconds=31 + dice.random() * 1e6)
    name, seq, fields = dice.choice(
        [
            ("caller", request, {"user_name": "eve"}), ("server", request, {"server_name": "other"}),
            ("identity", request, {"identity_name": "mine"}), ("target", request, {"target": "tool_x"}),
            ("method", request, {"method": "prompts/get"}), ("state", finish, {"state": "cancelled"}),
            ("request time", request, {"created_at": call.created_at - late}),
            ("sending time", sent, {"sent_at": call.sent_at + late}), ("no sending time", sent, {"sent_at": None}),
            ("end time", finish, {"finished_at": call.finished_at + late}), ("running", finish, {"state": "sent"}),
            ("result", finish, {"result": other}), ("arguments", request, {"arguments": other}), ("epoch", sent, {"epoch": 8}),
        ]
    )  # fmt: skip
    if seq is None:  # its event was cut: nothing is left that the row could contradict
        return delete_call(dice)
    rows.update(**fields)
    return Change(f"{name} of a call", seq)


def delete_call(dice: random.Random) -> Change:
    with_request = AuditEvent.objects.filter(action="call:tool:request")
    seq, uid = dice.choice(list(with_request.order_by("seq").values_list("seq", "call_uid")))
    Call.objects.filter(uid=uid).delete()
    return Change(f"deleted the call of {seq}", seq)


def insert_call(dice: random.Random) -> Change:
    call = Call.objects.order_by("-pk").first()
    assert call is not None
    call.pk, call.uid, call.created_at = None, uuid4(), call.created_at + timedelta(hours=1)
    call.save(force_insert=True)
    return Change("inserted a call", None, exported=False)


def forge_checkpoint(dice: random.Random) -> Change:
    row = Checkpoint.objects.get(pk=dice.choice(list(Checkpoint.objects.values_list("pk", flat=True))))
    how = dice.choice(["hash", "note"])
    if how == "hash":
        Checkpoint.objects.filter(pk=row.pk).update(hash="f" * 64)
    else:
        Checkpoint.objects.filter(pk=row.pk).update(note=row.note.replace("kind ", "kind x", 1))
    return Change(f"{how} of the checkpoint of {row.seq}", row.seq, exported=False)


IN_DATABASE: list[Callable[[random.Random], Change]] = [
    flip, flip, project, project, delete, delete_range, swap, insert, truncate_front, truncate_tail, delete_all, rebuild,
    edit_payload, edit_payload, edit_call, edit_call, delete_call, insert_call, forge_checkpoint,
]  # fmt: skip


# --- in an export -------------------------------------------------------------------------------------------------------
def change_lines(path: Path, dice: random.Random) -> Change:
    """Without the key: lines edited, removed, swapped, doubled, cut off, added; hashes computed again."""
    lines = path.read_text().splitlines()
    parsed = [json.loads(line) for line in lines]
    places = [n for n, line in enumerate(parsed) if line["type"] == "event"]
    n = dice.choice(places)
    seq = parsed[n]["seq"]
    known = [parsed[place]["seq"] for place in places]
    how = dice.choice(
        ["body", "hash", "removed", "swapped", "doubled", "tail", "end", "added", "rebuilt", "payload", "call"]
    )
    if how in ("body", "hash"):
        text = parsed[n][how]
        place = dice.randrange(len(text))
        parsed[n][how] = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        change = Change(how, seq)
    elif how == "removed":
        following = n + 1
        while parsed[following]["type"] in ("payload", "call"):
            following += 1
        del parsed[n:following]
        change = Change(how, seq, (known[-1], known[-1] + 1))
    elif how == "swapped":
        other = dice.choice([place for place in places if place != n])
        parsed[n], parsed[other] = parsed[other], parsed[n]
        seq = min(seq, parsed[n]["seq"])
        change = Change(how, seq, tuple(known))
    elif how == "doubled":
        parsed.insert(n, parsed[n])
        change = Change(how, seq)
    elif how == "tail":
        del parsed[n:-1]
        change = Change(how, seq)
    elif how == "end":
        parsed.pop()
        change = Change(how, known[-1] + 1)
    elif how == "added":
        parsed.append(parsed[n])
        change = Change(how, None)
    elif how == "rebuilt":
        prev = None
        for place in places[places.index(n) :]:
            body = json.loads(parsed[place]["body"])
            body["actor"]["name"], body["prev"] = (
                ("eve", body["prev"]) if prev is None else (body["actor"]["name"], prev)
            )
            parsed[place]["body"] = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            prev = parsed[place]["hash"] = hashlib.sha256(parsed[place]["body"].encode()).hexdigest()
        change = Change(how, seq, (*known, None))
    else:
        of_kind = [place for place, line in enumerate(parsed) if line["type"] == how]
        n = dice.choice(of_kind)
        seq = max(parsed[place]["seq"] for place in places if place < n)
        if dice.random() < 0.5:
            del parsed[n]
        elif how == "payload":
            parsed[n]["text"] += " "
        else:
            parsed[n][dice.choice(["user", "server", "target", "state"])] = "eve"
        change = Change(how, seq, tuple(known))
    path.write_text("".join(json.dumps(line) + "\n" for line in parsed))
    return change
