#!/usr/bin/env python3
"""Verifies an export of mcpadmin's audit log (docs/audit-proof.md) without mcpadmin. Needs Python 3.11 and `cryptography`.
python3 verify_export.py EXPORT --key KEY [--key KEY ...] [--checkpoints FILE ...]
KEY is the log's public key, noted while the log was known to be good. FILE is a checkpoint file, or what a witness kept.
Ends with 0 if nothing was found, 1 if the log was changed (the first bad event is named), 2 if it cannot be checked."""

import argparse
import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import groupby
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

TOLERANCE, REQUEST = timedelta(seconds=30), "call:tool:request"  # of a row's time that its event does not name
NOTES, NEVER, when = ("checkpoint", "cut"), datetime.min.replace(tzinfo=UTC), datetime.fromisoformat
Line = dict[str, Any]


class Bad(Exception): ...  # of the number of the first bad event, None where there is none to name, and words


def demand(fits: Any, seq: int | None, words: str) -> None:
    if not fits:
        raise Bad(seq, words)


def parse_key(text: str) -> tuple[tuple[str, bytes], Ed25519PublicKey]:
    name, identity, data = text.strip().split("+", 2)
    key = b64decode(data, validate=True)
    digest = sha256(name.encode() + b"\n" + key).digest()[:4]
    if key[:1] != b"\x01" or digest.hex() != identity:
        raise ValueError("This is not a public key of an audit log.")
    return (name, digest), Ed25519PublicKey.from_public_bytes(key[1:])


def open_note(note: str, keys: dict[tuple[str, bytes], Ed25519PublicKey]) -> Line | None:
    """The statement in a C2SP signed note; None if none of the keys signed it."""
    text, _, signatures = note.rpartition("\n\n")
    origin, *lines = text.split("\n")
    for line in signatures.splitlines():
        with suppress(KeyError, ValueError, InvalidSignature):
            signature = b64decode(line.rpartition(" ")[2])
            keys[origin, signature[:4]].verify(signature[4:], f"{text}\n".encode())
            more: Line = dict(line.split(" ", 1) for line in lines[2:])
            return {**more, "seq": int(lines[0]), "hash": b64decode(lines[1]).hex(), "time": when(more["time"])}
    return None


class Verifier:  # takes the lines of an export in order; its header and all signed statements are read before
    def __init__(self, text: bytes, header: Line, statements: list[Line]) -> None:
        self.whole, self.payloads, self.calls = not header["filtered"], header["payloads"], header["calls"]
        self.back = [s for s in statements if s["kind"] == "restored"]
        void = [s for s in statements for b in self.back if s["seq"] > b["seq"] and s["time"] < b["time"]]
        self.statements = sorted((s for s in statements if s not in void), key=lambda s: int(s["seq"]))
        self.cut = [{"seq": 0, "hash": "", "first": 1}, *(s for s in self.statements if s["kind"] == "cut")][-1]
        self.signed_at = {seq: list(found) for seq, found in groupby(self.statements, key=lambda s: int(s["seq"]))}
        self.gone = {s["rows"]: when(s["before"]) + TOLERANCE for s in self.statements if s["kind"] == "removal"}
        self.after = header.get("after", 0)  # events up to this one are in earlier files
        self.seq = self.signed = self.before = max(self.cut["seq"], self.after)
        self.prev = [s["hash"] for s in self.signed_at.get(self.seq, ())] if self.seq else [""]  # none: not known
        self.count = self.contents = self.gaps = self.run = self.chained = 0
        self.hashes, self.lines, self.at = sha256(), sha256(text), NEVER
        self.roles, self.due, self.named = dict[str, str](), set[str](), set[str]()  # digests of payloads
        self.erased, self.erasures, self.asked = dict[str, int](), set[str](), dict[Any, datetime]()
        self.request, self.open = Line(), dict[str, Line]()  # body whose call must follow; calls that did not end yet

    def event(self, line: Line) -> None:
        self.end_of_event()
        seq, digest, body = line["seq"], line["hash"], json.loads(line["body"])
        demand(sha256(line["body"].encode()).hexdigest() == digest, seq, "It does not match its recorded hash.")
        rest = not self.count and int(self.cut["first"]) <= seq <= self.cut["seq"]  # of an interrupted cut
        demand(body["seq"] == seq and (seq > self.seq or rest), seq, "It is not part of the chain.")
        if seq == self.seq + 1:
            demand(all(body["prev"] == h for h in self.prev), seq, "It does not follow the previous event.")
        elif not rest:
            demand(not self.whole, self.seq + 1, "It is missing.")
            self.gaps, self.run = self.gaps + 1, 0
        demand("columns" not in line, seq, "Its columns differ from the body that was hashed.")
        self.seq, self.prev, self.count, self.run = seq, [digest], self.count + 1, self.run + 1
        for s in self.signed_at.get(seq, ()):
            first = min(self.signed + 1, seq) if self.whole else seq
            demand(s["hash"] == digest, first, f"Event {seq} is not the one that was signed at {s['time']} UTC.")
            self.signed, self.chained, self.run = seq, self.chained + self.run, 0
        self.hashes.update(digest.encode())
        call, details, roles, asks = body["call"], body["details"], body["digests"].items(), body["action"] == REQUEST
        self.at, self.roles = when(body["at"]), {d: role for role, d in roles if role != "erased"}
        self.due = self.roles.keys() - self.named if self.payloads else set()
        self.named |= self.due
        self.request = body if asks and self.calls else {}  # it also decides which payloads of its call may be gone
        self.age = self.asked.setdefault(call or seq, self.at if asks or not call or not self.before else NEVER)
        self.erasures |= {d for role, d in roles if role == "erased" or (role == "arguments" and self.age == NEVER)}
        if (row := self.open.get(call)) and body["action"] == "call:tool:send" and details.get("attempt") == 1:
            demand(row["epoch"] == details["epoch"], seq, "The epoch of the call was changed.")
            self.near(row["sent_at"], body.get("context", {}).get("sent_at"))
        if row and body["action"] == "call:tool:finish" and not details.get("late"):
            ended = row["state"] == details["state"] and row["result"] == body["digests"].get("result")
            demand(ended, seq, "The state or the result of the call was changed.")
            self.near(row["finished_at"], body.get("context", {}).get("finished_at"))
            del self.open[row["uid"]]

    def near(self, time: str | None, named: str | None) -> None:
        fits = time == named if named else time and abs(when(time) - self.at) <= TOLERANCE
        demand(fits, self.seq, "A time of the call was changed.")

    def payload(self, line: Line) -> None:
        self.due.discard(digest := line["digest"])
        demand(digest in self.roles, self.seq, "It is followed by a payload that it does not name.")
        if line.get("erased"):
            self.erased[digest] = self.seq if self.age >= self.gone.get("payloads", NEVER) else 0
        else:
            data = b64decode(line["salt"]) + (b64decode(line["blob"]) if "blob" in line else line["text"].encode())
            demand(sha256(data).hexdigest() == digest, self.seq, f"The {self.roles[digest]} was changed.")
            self.contents += 1

    def call(self, row: Line) -> None:
        body, self.request = self.request, {}
        demand(body and row["uid"] == body["call"], self.seq, "It is followed by a call that it does not request.")
        names = [row["user"], row["server"], row["identity"], row["method"], row["target"][:300], row["arguments"]]
        said = [body["actor"]["name"], (body["server"] or {}).get("name"), body["identity"], body["details"]["method"]]
        demand(names == [*said, body["subject"], body["digests"]["arguments"]], self.seq, "The call's row was changed.")
        self.near(row["created_at"], body.get("context", {}).get("created_at"))
        self.open[row["uid"]] = {**row, "seq": self.seq}

    def end_of_event(self) -> None:
        demand(not self.due or self.age < self.gone.get("payloads", NEVER), self.seq, "Its payload is missing.")
        demand(not self.request or self.at < self.gone.get("calls", NEVER), self.seq, "The row of the call is missing.")

    def finish(self, end: Line) -> Iterator[str]:
        self.end_of_event()
        demand(end.get("kind") == "export", self.seq + 1, "It is cut off, or its end is not signed with this key.")
        if self.whole:
            last = ([end] + [s for s in self.statements if s["seq"] > self.seq and s["kind"] != "removal"])[-1]
            words = f"The log ends at event {self.seq}. At {last['time']} UTC it had {last['seq']:,} events."
            demand(last["seq"] == self.seq and all(last["hash"] == h for h in self.prev if h), self.seq + 1, words)
            for digest, seq in self.erased.items():
                demand(not seq or digest in self.erasures, seq, "Its payload was erased, and no event says so.")
            for row in self.open.values():
                demand(row["state"] in ("held", "requested", "sent"), row["seq"], "No event ended the call.")
        fits = (str(self.count), self.hashes.digest()) == (end["events"], b64decode(end["digest"]))
        demand(fits, None, "These are not the events that were exported: some were added, removed or changed.")
        fits = end.get("lines") in (None, b64encode(self.lines.digest()).decode())
        demand(fits, None, "The header or other lines were changed or removed.")
        yield f"No tampering found: {self.count:,} events verified, {self.contents:,} payloads, {len(self.erased):,} erased."
        if "lines" not in end:
            yield "Header not covered: an older version signed only the events. Payloads and calls may have been left out."
        yield from (f"Begins after event {n}: earlier events are in earlier files." for n in [self.after] if n)
        yield from (f"Retention removed the events up to {s['seq']}." for s in [self.cut] if s["seq"])
        yield from (f"{s['time']} UTC: an older database, up to event {s['seq']}, was accepted." for s in self.back)
        yield f"{self.chained:,} events lead to a checkpoint. The rest is vouched for only by the export's signature from {end['time']} UTC."
        if not self.whole:
            yield f"Filtered, with {self.gaps} gaps: it cannot be proved that no event is missing in them."


def lines_of(path: str, *torn: type[Exception]) -> Iterator[tuple[bytes, Line]]:  # a full disk cuts a checkpoint off
    with open(path, "rb") as lines:
        for line in lines:
            with suppress(*torn):
                yield line, json.loads(line.decode())


def verify(export: str, keys: Iterable[str], files: Iterable[str] = ()) -> list[str]:
    """The lines of the report. Raises Bad; OSError and ValueError for what cannot be checked."""
    trusted, end = dict(map(parse_key, keys)), None
    notes = [n["note"] for path in (export, *files) for _, n in lines_of(path, ValueError) if n["type"] in NOTES]
    text, header = next(lines := lines_of(export), (b"", Line()))
    if (header.get("type"), header.get("format")) != ("header", 1):
        raise ValueError("This is not an export of format 1.")
    verifier = Verifier(text, header, [s for s in (open_note(note, trusted) for note in notes) if s])
    take = {"event": verifier.event, "payload": verifier.payload, "call": verifier.call}
    for text, line in lines:
        demand(end is None, None, "Something was added after the end of the export.")
        try:
            verifier.lines.update(text if line["type"] != "end" else b"")
            if line["type"] == "end":
                end = open_note(line["note"], trusted)
            elif line["type"] not in NOTES:
                take[line["type"]](line)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise Bad(line.get("seq", verifier.seq), f"A line cannot be read: {problem!r}") from None
    return list(verifier.finish(end or {}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("export")
    parser.add_argument("--key", action="append", required=True)
    parser.add_argument("--checkpoints", action="append", default=[])
    try:
        print("\n".join(verify(*vars(parser.parse_args()).values())))
    except Bad as bad:
        sys.exit(f"The log was changed. First bad event: {bad.args[0] or 'none'}. {bad.args[1]}")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(print(f"Cannot check: {problem}") or 2)
