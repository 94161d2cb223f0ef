"""The verifier finds every direct change to the rows of the chain."""

import hashlib
import json
import random
from typing import Any
from uuid import uuid4

import pytest
import rfc8785
from django.core.management import call_command
from django.db import connection, transaction
from django.test import RequestFactory

from servers.audit import record as record_module
from servers.audit.acts import audited
from servers.audit.record import SYSTEM, Actor, Event, ServerRef, record, record_many
from servers.audit.verify import verify
from servers.enums import AuditAction, AuditOutcome
from servers.json.canonical import canonical, plain
from servers.models import AuditEvent, AuditHead
from servers.secret import Secret
from servers.signals import audit_recorded

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tamperable")]


def event(subject: str = "echo", **fields: Any) -> Event:
    return Event(
        AuditAction.CONNECTION_TEST, AuditOutcome.OK, Actor(7, "ada", "192.0.2.7", "r-1"), subject=subject, **fields
    )


def chain_of(count: int) -> None:
    server = ServerRef(uuid4(), "orders")
    record_many([event(f"tool {n}", server=server, call_uid=uuid4(), details={"n": n}) for n in range(count)])


def sql(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


@transaction.atomic
def recorded_and_rolled_back(subject: str) -> None:
    record(event(subject))
    _ = 1 / 0


def test_numbers_start_at_one_and_have_no_gap() -> None:
    assert list(record_many([event(), event()])) == [1, 2]
    assert record(event()) == 3
    assert list(AuditEvent.objects.order_by("seq").values_list("seq", flat=True)) == [1, 2, 3]


def test_the_hash_covers_a_body_that_names_the_hash_before() -> None:
    chain_of(2)
    first, second = AuditEvent.objects.order_by("seq")
    assert first.hash == hashlib.sha256(first.body.encode()).hexdigest()
    assert json.loads(first.body)["prev"] == ""
    assert json.loads(second.body)["prev"] == first.hash
    assert AuditHead.objects.get().hash == second.hash


def test_the_body_is_canonical_json() -> None:
    record(event("ä€", details={"b": 1, "a": [1.0, True, None], "big": 2**60}))
    body = AuditEvent.objects.get().body
    assert body == canonical(json.loads(body))
    assert json.loads(body)["details"] == {"a": [1, True, None], "b": 1, "big": str(2**60)}


def test_what_no_text_column_holds_is_replaced_and_the_chain_holds() -> None:
    record(event("nul \0 and lone \ud800", details={"k\0": "v\udfff"}))
    assert AuditEvent.objects.get().subject == "nul \ufffd and lone \ufffd"
    assert verify().ok


def test_names_longer_than_their_columns_are_cut_the_same_in_body_and_column() -> None:
    record(event("x" * 1000))
    assert len(AuditEvent.objects.get().subject) == 300
    assert verify().ok


def test_a_secret_in_the_details_is_refused() -> None:
    with pytest.raises(TypeError, match="never enters"):
        record(event(details={"token": Secret("hunter2")}))


@pytest.mark.django_db(transaction=True)
def test_recording_outside_of_a_transaction_is_refused() -> None:
    with pytest.raises(transaction.TransactionManagementError):
        record(event())


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_transaction_leaves_no_event_and_no_gap() -> None:
    with transaction.atomic():
        record(event("kept"))
    with pytest.raises(ZeroDivisionError):
        recorded_and_rolled_back("lost")
    with transaction.atomic():
        assert record(event("next")) == 2
    assert verify().ok


@pytest.mark.django_db(transaction=True)
def test_listeners_are_told_the_numbers_after_the_commit_only() -> None:
    told: list[range] = []

    def hear(seqs: range, **_: Any) -> None:
        assert not connection.in_atomic_block
        told.append(seqs)

    audit_recorded.connect(hear)
    try:
        with pytest.raises(ZeroDivisionError):
            recorded_and_rolled_back("lost")
        with transaction.atomic():
            record_many([event(), event()])
    finally:
        audit_recorded.disconnect(hear)
    assert told == [range(1, 3)]


# --- verification --------------------------------------------------------------------------------------------------------
def test_an_empty_log_and_an_untouched_one_verify() -> None:
    assert verify().ok
    chain_of(30)
    assert verify().checked == 30
    assert verify(10, 19).checked == 10


def test_events_of_body_version_one_stay_valid_beside_those_of_version_two() -> None:
    earlier = record(event("of an earlier version"))
    row = AuditEvent.objects.get(seq=earlier)
    row.body = canonical(record_module.body_of(vars(row), "", {}, {}))
    row.hash, row.way = hashlib.sha256(row.body.encode()).hexdigest(), None
    row.save()
    AuditHead.objects.update(hash=row.hash)
    record(event("of this version", context={"epoch": 3, "revision": "", "duration_ms": None}))
    bodies = [json.loads(body) for body in AuditEvent.objects.order_by("seq").values_list("body", flat=True)]
    assert [body["v"] for body in bodies] == [1, 2]
    assert "context" not in bodies[0]
    assert bodies[1]["context"] == {"epoch": 3, "way": "page"}
    assert verify().ok


def test_its_progress_is_reported_in_bounded_steps_and_can_end_it() -> None:
    chain_of(1_100)
    told: list[tuple[int, int]] = []
    assert verify(on_progress=lambda checked, total: told.append((checked, total))).ok
    assert told == [(checked, 1_100) for checked in range(50, 1_101, 50)]

    def stop(checked: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        verify(on_progress=stop)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("action", "call:tool:send"),
        ("outcome", "failed"),
        ("actor_id", 8),
        ("actor_name", "eve"),
        ("server_uid", "7" * 32),
        ("server_name", "other"),
        ("identity_name", "mine"),
        ("subject", "tool x"),
        ("call_uid", "5" * 32),
        ("ip", "192.0.2.8"),
        ("way", "agent"),
        ("request_id", "r-2"),
        ("at", "2001-01-01 00:00:00"),
        ("hash", "0" * 64),
    ],
)
def test_a_changed_column_is_found(column: str, value: object) -> None:
    chain_of(5)
    sql(f"UPDATE servers_auditevent SET {column} = %s WHERE seq = 3", value)  # noqa: S608 - columns of this file
    verdict = verify()
    assert (verdict.ok, verdict.first_bad_seq, verdict.checked) == (False, 3, 2)


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.long)])
def test_every_changed_byte_of_a_body_is_found(count: int) -> None:
    chain_of(6)
    dice = random.Random(8785)
    for _ in range(count):
        victim = AuditEvent.objects.get(seq=dice.randint(1, 6))
        place = dice.randrange(len(victim.body))
        changed = victim.body[:place] + chr(ord(victim.body[place]) ^ 1) + victim.body[place + 1 :]
        sql("UPDATE servers_auditevent SET body = %s WHERE seq = %s", changed, victim.seq)
        verdict = verify()
        assert (verdict.ok, verdict.first_bad_seq) == (False, victim.seq), changed
        sql("UPDATE servers_auditevent SET body = %s WHERE seq = %s", victim.body, victim.seq)
    assert verify().ok


def test_a_body_rewritten_with_its_own_right_hash_is_found_at_the_next_link() -> None:
    chain_of(5)
    victim = AuditEvent.objects.get(seq=3)
    body = victim.body.replace("tool 2", "tool 9")
    fresh = hashlib.sha256(body.encode()).hexdigest()
    sql("UPDATE servers_auditevent SET body = %s, hash = %s, subject = 'tool 9' WHERE seq = 3", body, fresh)
    verdict = verify()
    assert (verdict.ok, verdict.first_bad_seq) == (False, 4)


@pytest.mark.parametrize("gone", [1, 3, 5])
def test_a_deleted_event_is_found(gone: int) -> None:
    chain_of(5)
    sql("DELETE FROM servers_auditevent WHERE seq = %s", gone)
    verdict = verify()
    assert (verdict.ok, verdict.first_bad_seq) == (False, gone)


def test_a_cut_tail_is_found_even_when_the_head_was_moved_back_to_a_wrong_hash() -> None:
    chain_of(5)
    sql("DELETE FROM servers_auditevent WHERE seq > 3")
    assert verify().first_bad_seq == 4
    sql("UPDATE servers_audithead SET seq = 3")
    assert verify().first_bad_seq == 3


def test_two_swapped_events_are_found() -> None:
    chain_of(5)
    for old, new in ((2, 99), (4, 2), (99, 4)):
        sql("UPDATE servers_auditevent SET seq = %s WHERE seq = %s", new, old)
    assert verify().first_bad_seq == 2


@pytest.mark.parametrize(("at", "found"), [(0, 0), (-4, -4), (6, 6), (17, 17)])
def test_an_inserted_event_is_found(at: int, found: int) -> None:
    chain_of(5)
    row = AuditEvent.objects.get(seq=5)
    row.seq = at
    row.save(force_insert=True)
    verdict = verify()
    assert not verdict.ok
    assert verdict.first_bad_seq in {found, 6}


DAMAGE = {
    "a changed column": "UPDATE servers_auditevent SET subject = 'forged' WHERE seq = %s",
    "a changed hash": "UPDATE servers_auditevent SET hash = 'forged' WHERE seq = %s",
    "a deleted event": "DELETE FROM servers_auditevent WHERE seq = %s",
    "a body that cannot be read": "UPDATE servers_auditevent SET body = x'ff' WHERE seq = %s",
    "a time that cannot be read": "UPDATE servers_auditevent SET at = 'never' WHERE seq = %s",
}


#: two kinds at one pair of places, one kind at several
PAIRS = [
    pytest.param(first, second, places, marks=() if places == (3, 5) or first == second else pytest.mark.long)
    for first in DAMAGE
    for second in DAMAGE
    for places in [(3, 5), (1, 2), (4, 8)]
]


@pytest.mark.parametrize(("first", "second", "places"), PAIRS)
def test_known_damage_hides_no_other(first: str, second: str, places: tuple[int, int]) -> None:
    chain_of(8)
    one, other = places
    if first == second == "a deleted event" and other == one + 1:
        other += 1  # a gap that grows is the same damage
    sql(DAMAGE[first], one)
    known = verify(is_known=lambda broken: broken.seq == one)
    assert (known.ok, known.first_bad_seq, known.unknown, known.checked) == (False, one, None, one - 1)
    sql(DAMAGE[second], other)
    found = verify(is_known=lambda broken: broken.seq == one)
    assert (found.first_bad_seq, found.reason, found.checked) == (one, known.reason, one - 1)
    assert found.unknown is not None
    assert found.unknown.seq == other
    unaware = verify()
    assert unaware.unknown is not None
    assert (unaware.first_bad_seq, unaware.unknown.seq) == (one, one)


def test_events_that_are_missing_side_by_side_are_one_damage() -> None:
    chain_of(8)
    sql("DELETE FROM servers_auditevent WHERE seq IN (3, 4, 5)")
    assert verify(is_known=lambda broken: broken.seq == 3).unknown is None
    sql("DELETE FROM servers_auditevent WHERE seq >= 7")
    found = verify(is_known=lambda broken: broken.seq == 3).unknown
    assert found is not None
    assert found.seq == 7


def test_a_lost_head_is_found() -> None:
    chain_of(2)
    AuditHead.objects.all().delete()
    assert not verify().ok


def test_the_command_ends_with_status_one_on_a_broken_chain(capsys: pytest.CaptureFixture[str]) -> None:
    chain_of(3)
    call_command("verify_audit")
    assert "3 events verified" in capsys.readouterr().out
    sql("DELETE FROM servers_auditevent WHERE seq = 2")
    with pytest.raises(SystemExit) as ended:
        call_command("verify_audit")
    assert ended.value.code == 1
    assert "event 2" in capsys.readouterr().err


# --- who and where from --------------------------------------------------------------------------------------------------
def test_a_forged_forwarding_header_does_not_change_the_address(settings: Any, rf: RequestFactory) -> None:
    request = rf.get("/", REMOTE_ADDR="192.0.2.9", HTTP_X_FORWARDED_FOR="1.1.1.1")
    settings.TRUSTED_PROXIES = 0
    assert Actor.of(request).ip == "192.0.2.9"


def test_behind_one_proxy_the_address_is_what_that_proxy_saw(settings: Any, rf: RequestFactory) -> None:
    request = rf.get("/", REMOTE_ADDR="10.0.0.2", HTTP_X_FORWARDED_FOR="1.1.1.1, 203.0.113.5")
    settings.TRUSTED_PROXIES = 1
    assert Actor.of(request).ip == "203.0.113.5"


# --- acts ------------------------------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_an_act_that_fails_keeps_only_its_denials() -> None:
    denied = Event(AuditAction.PERMISSION_DENY, AuditOutcome.DENIED, SYSTEM, subject="denied")

    def act() -> None:
        with audited(SYSTEM) as trail:
            trail.add(denied)
            trail.note(AuditAction.SERVER_CHANGE, None, "done")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        act()
    assert list(AuditEvent.objects.values_list("subject", flat=True)) == ["denied"]


def test_both_encoders_write_the_same_canonical_text() -> None:
    """The fast encoder is used where neither floats nor the UTF-16 order of keys matter."""
    numbers = random.Random(5)
    alphabet = 'ab"\\/\b\f\n\r\t\x01\x1f\x7f\u00e9\u2028\u20ac\ue000\U0001f600 z'

    def value(depth: int) -> Any:
        kinds = [None, True, numbers.randrange(-(2**53), 2**53), numbers.random() * 1e20, text()]
        if depth:
            kinds += [[value(depth - 1) for _ in range(3)], {text(): value(depth - 1) for _ in range(4)}]
        return numbers.choice(kinds)

    def text() -> str:
        return "".join(numbers.choices(alphabet, k=numbers.randrange(6)))

    for _ in range(200):
        made = {"v": value(2), "k": text()}
        assert canonical(made) == rfc8785.dumps(plain(made)).decode()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("at", "'not a time'"),
        ("server_uid", "'not a uid'"),
        ("call_uid", "12"),
        ("body", "CAST(x'ff' AS TEXT)"),
        ("body", "'[1]'"),
        ("body", "x'00'"),
        ("actor_name", "x'ff'"),
        ("subject", "7"),
    ],
)
def test_an_event_that_cannot_be_read_is_named(column: str, value: str) -> None:
    chain_of(5)
    sql(f"UPDATE servers_auditevent SET {column} = {value} WHERE seq = 3")  # noqa: S608  # constants of this file
    verdict = verify()
    assert (verdict.ok, verdict.checked, verdict.first_bad_seq) == (False, 2, 3)
    assert "vent 3" in verdict.reason
