"""A single stand-alone file verifies an export, without mcpadmin or its database."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from servers.audit import payloads
from servers.audit.proof import checkpoints, removals, verify_export
from servers.audit.proof import export as export_lines
from servers.audit.proof.cuts import cut
from servers.audit.proof.notes import Statement, signed
from servers.audit.verify import verify
from servers.models import AuditEvent, Payload
from sessions.models import Call
from tests.servers.audit.proof import log

pytestmark = pytest.mark.django_db
PROGRAM = Path(verify_export.__file__)
Change = Callable[[list[dict[str, Any]]], None]


def run(export: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """On a clean machine: isolated from the product's packages and variables."""
    command = [sys.executable, "-I", str(PROGRAM), str(export), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd="/")


def test_a_clean_log_is_accepted_by_both_verifiers(tmp_path: Path, settings: Any) -> None:
    log.fill()
    assert verify().ok, verify()
    done = run(log.export_to(tmp_path / "e"), "--key", log.public_key(), "--checkpoints", str(settings.CHECKPOINT_FILE))
    assert (done.returncode, done.stderr) == (0, "")
    assert "25 events verified, 12 payloads, 0 erased" in done.stdout
    assert "25 events lead to a checkpoint" in done.stdout


def test_a_line_of_the_checkpoint_file_that_a_full_disk_cut_off_is_passed_over(tmp_path: Path, settings: Any) -> None:
    log.fill()
    path = Path(settings.CHECKPOINT_FILE)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:100])
    log.sign()
    assert len(path.read_text().splitlines()) == len(whole.splitlines()) + 2
    assert verify().ok, verify()
    done = run(log.export_to(tmp_path / "e"), "--key", log.public_key(), "--checkpoints", str(path))
    assert (done.returncode, done.stderr) == (0, ""), done


@pytest.mark.parametrize("column", ["created_at", "sent_at", "finished_at"])
@pytest.mark.parametrize("number", [0, 1], ids=["of an older version", "of this version"])
def test_a_time_of_a_call_is_the_one_that_its_event_names(tmp_path: Path, number: int, column: str) -> None:
    call = log.one_call(*log.caller_and_server(), number)
    Call.objects.update(**{column: getattr(call, column) + timedelta(seconds=1)})
    done = run(log.export_to(tmp_path / "e"), "--key", log.public_key())
    assert verify().ok is not log.names_times(call)
    assert ("A time of the call was changed." in done.stderr) is log.names_times(call), done


def test_a_line_of_an_export_that_is_cut_off_is_not(tmp_path: Path) -> None:
    log.fill()
    export = log.export_to(tmp_path / "e")
    export.write_bytes(export.read_bytes().replace(b'"note"', b"", 1))
    assert run(export, "--key", log.public_key()).returncode == 2


def test_a_checkpoint_that_is_signed_as_an_export_begins_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about an event beyond the end of the export."""
    log.fill(2)
    read = checkpoints.newest_cut

    def while_signed() -> Statement | None:
        monkeypatch.setattr(checkpoints, "newest_cut", read)
        log.fill(2)
        return read()

    monkeypatch.setattr(checkpoints, "newest_cut", while_signed)
    export = log.export_to(tmp_path / "e")
    assert "9 events verified" in run(export, "--key", log.public_key()).stdout


def rows_in(export: Path) -> dict[str, dict[str, Any]]:
    lines = map(json.loads, export.read_text().splitlines())
    return {line["target"]: line for line in lines if line["type"] == "call"}


def test_calls_that_go_on_while_an_export_is_written_are_in_it_as_they_were_when_it_began(tmp_path: Path) -> None:
    log.fill(1)
    user, server = log.caller_and_server()
    ends, runs, cancelled, through = (log.begin(user, server, number, sent=number == 1) for number in range(1, 5))

    def meanwhile() -> None:
        log.end(ends)
        log.send(runs)
        log.end(cancelled)
        log.send(through)
        log.end(through)

    export = log.export_to(tmp_path / "e", meanwhile)
    done = run(export, "--key", log.public_key())
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_in(export)
    assert [row["state"] for row in rows.values()] == ["tool_error", "sent", "requested", "requested", "requested"]
    assert [(row["epoch"], bool(row["sent_at"])) for row in rows.values()] == [(7, True)] * 2 + [(0, False)] * 3
    assert [target for target, row in rows.items() if row["finished_at"] or row["result"]] == ["tool_0"]
    assert run(log.export_to(tmp_path / "next"), "--key", log.public_key()).returncode == 0


def test_a_call_that_no_event_ended_is_found_in_an_export(tmp_path: Path) -> None:
    call = log.begin(*log.caller_and_server(), 1)
    call.state, call.finished_at = "succeeded", call.sent_at
    call.save()
    done = run(log.export_to(tmp_path / "e"), "--key", log.public_key())
    assert (done.returncode, "No event ended the call." in done.stderr) == (1, True)


@pytest.mark.django_db(transaction=True)
def test_a_later_file_verifies_after_a_cut_before_or_beyond_its_beginning(tmp_path: Path) -> None:
    log.fill(4)
    for before in (5, 9, 12):
        cut(before)
        export = log.export_to(tmp_path / "e", after=8)
        done = run(export, "--key", log.public_key())
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Begins after event 8: earlier events are in earlier files.\nRetention removed the events up to {before - 1}." in done.stdout  # fmt: skip


def late_result_of_an_erased_call() -> int:
    """The number of the event before it, which says that the arguments were erased."""
    call = log.one_call(*log.caller_and_server(), 1)
    log.erase(call.arguments)
    before = AuditEvent.objects.latest("seq").seq
    log.end_late(call)
    return int(before)


def test_arguments_that_an_earlier_file_says_were_erased_are_no_finding_in_a_later_one(tmp_path: Path) -> None:
    before = late_result_of_an_erased_call()
    for after in (0, before):
        done = run(log.export_to(tmp_path / "e", after=after), "--key", log.public_key())
        assert (done.returncode, done.stderr, "1 erased" in done.stdout) == (0, "", True)


@pytest.mark.django_db(transaction=True)
def test_nor_are_they_where_the_event_of_their_erasure_was_cut(tmp_path: Path) -> None:
    cut(late_result_of_an_erased_call() + 1)
    assert verify().ok, verify()
    done = run(log.export_to(tmp_path / "e"), "--key", log.public_key())
    assert (done.returncode, done.stderr) == (0, "")


def test_arguments_that_were_erased_without_an_event_are_found_in_the_file_of_their_request(tmp_path: Path) -> None:
    log.fill(1)
    after = AuditEvent.objects.latest("seq").seq
    call = log.one_call(*log.caller_and_server(), 1)
    payloads.erase(call.arguments)
    log.end_late(call)
    for begin in (0, after):
        done = run(log.export_to(tmp_path / "e", after=begin), "--key", log.public_key())
        assert (done.returncode, "Its payload was erased, and no event says so." in done.stderr) == (1, True)
    assert not verify().ok


@pytest.mark.parametrize("erased", [False, True], ids=["gone with the call", "emptied"])
def test_what_retention_removed_of_a_call_that_ended_after_the_time_of_its_leave_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, erased: bool
) -> None:
    """The final event is on a different page of the verification than the request, or in a later file."""
    monkeypatch.setattr("servers.audit.verify._CHUNK", 1)
    call = log.begin(*log.caller_and_server(), 1)
    asked = AuditEvent.objects.latest("seq")
    log.end(call)
    leave = asked.at + timedelta(microseconds=1) - verify_export.TOLERANCE
    for rows in ("calls", "payloads"):
        removals.allow(rows, leave)  # type: ignore[arg-type]  # both are such names
    if erased:
        payloads.erase(call.arguments)
    else:
        Call.objects.all().delete()
        Payload.objects.all().delete()
    verdict = verify()
    assert verdict.ok, verdict
    for after in (0, asked.seq):
        done = run(log.export_to(tmp_path / "e", after=after), "--key", log.public_key())
        assert (done.returncode, done.stderr) == (0, "")


def test_a_later_file_without_events_verifies(tmp_path: Path) -> None:
    log.fill(1)
    last = AuditEvent.objects.latest("seq").seq
    for signs in (False, True):
        if signs:
            log.sign()
        done = run(log.export_to(tmp_path / "e", after=last), "--key", log.public_key())
        assert (done.returncode, "0 events verified" in done.stdout) == (0, True), done


def without(kind: str) -> Change:
    return lambda lines: lines.__setitem__(slice(None), [line for line in lines if line["type"] != kind])


def header(**members: Any) -> Change:
    return lambda lines: lines[0].update(members)


def one_less(kind: str) -> Change:
    return lambda lines: lines.remove(next(line for line in lines if line["type"] == kind))


def erased(lines: list[dict[str, Any]]) -> None:
    payload = next(line for line in lines if line["type"] == "payload")
    digest = payload["digest"]
    payload.clear()
    payload |= {"type": "payload", "digest": digest, "erased": True}


CHANGES: dict[str, list[Change]] = {
    "all payloads": [without("payload"), header(payloads=False)],
    "one payload": [one_less("payload"), header(payloads=False)],
    "all calls": [without("call"), header(calls=False)],
    "a checkpoint": [one_less("checkpoint")],
    "a payload said to be erased": [erased, header(filtered=True)],
    "the filter": [header(filter="user:ann")],
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_no_line_is_left_out_and_the_header_is_as_it_was_signed(changes: list[Change], tmp_path: Path) -> None:
    log.fill()
    export = log.export_to(tmp_path / "e")
    assert run(export, "--key", log.public_key()).returncode == 0
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    for change in changes:
        change(lines)
    export.write_text("".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines))
    done = run(export, "--key", log.public_key())
    assert done.returncode == 1
    assert "The header or other lines were changed or removed." in done.stderr


def test_an_export_of_an_older_version_is_accepted_with_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill()
    assert "Header not covered" not in run(log.export_to(tmp_path / "e"), "--key", log.public_key()).stdout

    def signed_before(statement: Statement, *key: Any) -> str:
        more = {name: value for name, value in statement.more.items() if name != "lines"}
        return signed(replace(statement, more=more), *key)

    monkeypatch.setattr(export_lines, "signed", signed_before)
    done = run(log.export_to(tmp_path / "older"), "--key", log.public_key())
    assert (done.returncode, done.stderr) == (0, "")
    assert "Header not covered: an older version signed only the events." in done.stdout


def test_the_program_has_at_most_200_lines() -> None:
    assert len(PROGRAM.read_text().splitlines()) <= 200
