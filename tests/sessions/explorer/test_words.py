"""Free text finds the words of names, arguments, results and errors, for whom they are to be read, on both databases."""

import zlib
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, transaction

from servers.audit import payload_privacy, payloads
from servers.audit import writer as writing
from servers.audit.record import Actor, ServerRef
from servers.enums import AuditAction
from servers.exporting.selection import events_of
from servers.models import Payload, PrivacySettings, Server
from servers.privacy.erasing import erase
from servers.privacy.payload_readings import PayloadContext
from servers.signals import rows_removed
from sessions.enums import CallState
from sessions.explorer import fulltext, indexing, search
from sessions.explorer.language import Value
from sessions.mcp.core.methods import COMPLETE
from sessions.models import Call
from tests.servers.conftest import on_postgres, person  # noqa: F401  a fixture
from tests.sessions.explorer.rows import catch_up, ended_call, event, found, query
from tests.sessions.host.make import make_session

Check = Callable[[], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def reader() -> Any:
    return get_user_model().objects.create_superuser("root", password="x")


@check
def words_of_arguments_results_and_errors_are_found_and_missing_ones_are_not() -> None:
    session, admin = make_session(), reader()
    ended_call(session, "create_issue", arguments={"title": "Größe der Ampel\nacme"})
    ended_call(session, "list_issues", result={"content": [{"type": "text", "text": "ord_41F9 is paid"}]})
    ended_call(session, "broken", state=CallState.RPC_ERROR, error_message="Quota of ACME exceeded")
    catch_up()
    assert found(admin, "acme") == ["broken", "create_issue"]
    assert found(admin, "große") == found(admin, "Größe") == found(admin, "AMPEL") == ["create_issue"]
    assert found(admin, '"ord_41f9 is"') == found(admin, "paid") == ["list_issues"]
    assert found(admin, '"paid ord_41f9"') == []
    assert found(admin, "quo*") == ["broken"]
    assert found(admin, "acme -quota in:calls") == ["create_issue"]
    assert found(admin, "acme outcome:error") == ["broken"]
    assert found(admin, "nowhere") == found(admin, '"--"') == []
    assert found(admin, 'in:calls -"--"') == found(admin, "in:calls")
    assert found(admin, 'acme -"--"') == found(admin, "acme")
    assert found(admin, "issue in:calls") == ["create_issue"]


@check
def a_word_that_must_not_be_there_is_on_no_page_and_in_no_export() -> None:
    session, admin = make_session(), reader()
    for number in range(12):
        ended_call(session, f"tool{number}", arguments={"text": "acme" if number not in (1, 6) else "other"})
    catch_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "CANDIDATES", 4)
        patch.setattr(fulltext, "FOUND", 3)
        for text, expected in (
            ("-acme", ["tool6", "tool1"]),
            ("-acme -other", []),
            ("server:files -acme", ["tool6", "tool1"]),
        ):
            read = [search.page(admin, query(f"in:calls {text}"))]
            while read[-1].older:
                read.append(search.page(admin, query(f"in:calls {text}"), read[-1].older))
            assert [row.target for page in read for row in page.rows] == expected
            assert {one.subject for one in events_of(admin, f"in:calls {text}")} == set(expected)


@check
def rows_that_are_hidden_do_not_end_a_search_before_the_older_ones() -> None:
    session, admin = make_session(), reader()
    ended_call(session, "pay", arguments={"text": "acme"})
    for _ in range(4):
        ended_call(session, "pay", arguments={"text": "acme"}, method=COMPLETE)
    catch_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fulltext, "FOUND", 3)
        first = search.page(admin, query("in:calls acme"))
        assert (first.rows, bool(first.older)) == ([], True)
        assert [row.target for row in search.page(admin, query("in:calls acme"), first.older).rows] == ["pay"]


@check
def only_who_may_read_payloads_and_the_caller_find_by_arguments() -> None:
    session, admin = make_session(), reader()
    ann, bob = person("ann", "view_server"), person("bob", "view_server")
    ended_call(session, "pay", user=ann, arguments={"iban": "DE0012"})
    catch_up()
    assert found(admin, "de0012") == found(ann, "de0012") == ["pay"]
    assert found(bob, "de0012") == []
    assert found(bob, "pay") == found(bob, "ann") == ["pay"]
    assert found(admin, "pay -de0012") == found(ann, "pay -de0012") == []
    assert found(ann, "pay -other") == found(bob, "pay -de0012") == ["pay"]
    assert found(bob, "pay -ann") == []


@check
def an_erased_payload_leaves_index_and_preview() -> None:
    session, admin = make_session(), reader()
    call = ended_call(session, "pay", arguments={"iban": "DE0012"}, result={"receipt": "R77"})
    catch_up()
    assert Call.objects.get().preview == '{"iban": "DE0012"}'
    with transaction.atomic():
        payloads.erase(Payload.objects.get(pk=call.arguments_id))
    assert found(admin, "de0012") == []
    assert found(admin, "r77") == ["pay"]
    assert Call.objects.get().preview == ""


@check
def words_of_a_compressed_content_are_found_and_those_of_an_encrypted_one_are_not() -> None:
    session, admin = make_session(), reader()
    ended_call(session, "large", arguments={"word": "acme"}, result={"text": "paid " * settings.INLINE_PAYLOAD_BYTES})
    PrivacySettings.objects.create(pk=1, seal_payloads=True)
    payload_privacy.forget()
    encrypted = ended_call(session, "hidden", arguments={"word": "acme"}, error_message="paid twice")
    assert encrypted.arguments.sealed is not None
    catch_up()
    assert found(admin, "acme in:calls") == ["large"]
    assert found(admin, "paid in:calls") == ["hidden", "large"]
    assert found(admin, "hidden in:calls") == ["hidden"]


@check
def a_text_of_letters_that_are_taken_apart_is_found_by_its_beginning() -> None:
    """Korean syllables become three letters each: more than PostgreSQL takes for one document."""
    call, admin = ended_call(make_session(), "echo"), reader()
    syllables = [chr(0xAC01 + 28 * number) for number in range(100)]
    words = [syllables[number // 100] + syllables[number % 100] * 19 for number in range(6_200)]
    with transaction.atomic():
        fulltext.write("calls", [fulltext.Document(call.pk, "", call.target, " ".join(words))])
    assert found(admin, f"in:calls {words[100]}") == found(admin, "in:calls echo") == ["echo"]


@check
def calls_of_a_deleted_server_are_found_by_its_name_and_a_word_also_where_another_one_has_it_now() -> None:
    session, admin = make_session("github"), reader()
    ended_call(session, "old", arguments={"word": "acme"})
    catch_up()
    event(AuditAction.SERVER_DELETE, session.server.name, server=ServerRef.of(session.server))
    with transaction.atomic():
        Server.objects.filter(pk=session.server_id).delete()
    ended_call(make_session("github"), "new", arguments={"word": "acme"})
    ended_call(make_session("other"), "third", arguments={"word": "acme"})
    catch_up()
    assert found(admin, "server:github acme") == ["new", "old"]


@check
def a_content_that_cannot_be_read_any_more_keeps_no_other_from_the_index() -> None:
    session, admin = make_session(), reader()
    damaged, undecodable = ended_call(session, "damaged"), ended_call(session, "undecodable")
    for call, blob in ((damaged, b"no zlib"), (undecodable, zlib.compress(b"\xff"))):
        Payload.objects.filter(pk=call.arguments_id).update(text="", blob=blob)
    ended_call(session, "pay", arguments={"word": "acme"})
    catch_up()
    assert found(admin, "acme in:calls") == ["pay"]
    assert found(admin, "damaged in:calls") == ["damaged"]


@check
def events_are_found_by_their_words() -> None:
    admin = reader()
    event(AuditAction.SIGN_IN, "ann", Actor(None, "ann", "192.0.2.77"))
    event(AuditAction.SERVER_CHANGE, "Orders", details={"changes": {"url": {"after": "https://acme.example/mcp"}}})
    catch_up()
    assert found(admin, "192.0.2.77") == ["ann"]
    assert found(admin, '"signed in" ann') == ["ann"]
    assert found(admin, "acme.example") == ["Orders"]
    assert found(person("vera", "view_server"), "acme.example") == []


@check
def a_word_is_found_newest_first_whether_it_is_common_or_not() -> None:
    session, admin = make_session(), reader()
    for number in range(15):
        ended_call(session, f"tool{number}", arguments={"word": "acme" if number != 4 else "rare"})
    catch_up()
    everything = [f"tool{number}" for number in reversed(range(15)) if number != 4]
    assert found(admin, "acme") == everything
    assert found(admin, "rare") == ["tool4"]
    assert found(admin, "acme until:2h") == []


def documents() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM explorer_calls")
        return int(cursor.fetchone()[0])


@check
def words_of_a_call_go_with_the_call_also_while_an_older_one_stays() -> None:
    session = make_session()
    ended_call(session, "older")
    gone = ended_call(session, "pay", arguments={"word": "acme"})
    catch_up()
    before = documents()
    with transaction.atomic():
        rows_removed.send(sender=Call, ids=[gone.pk])
        gone.delete()
    assert documents() == before - 1


@check
def what_is_erased_while_a_batch_waits_to_be_written_is_not_found() -> None:
    session, admin = make_session(), reader()
    call = ended_call(session, "pay", arguments={"customer": "acme"}, error_message="acme refused")
    batch = indexing.next_batch()
    assert batch is not None
    with transaction.atomic():
        payloads.erase_all([call.arguments_id], everywhere=False)
    with transaction.atomic():
        assert indexing.write(batch)
    assert found(admin, "acme") == []
    assert found(admin, "pay in:calls") == ["pay"]


@check
def a_call_has_the_same_words_whether_its_contents_are_plain_or_not() -> None:
    session = make_session()
    long = "word " * settings.INLINE_PAYLOAD_BYTES
    calls = [
        ended_call(session, "plain", arguments={"a": "in"}, result={"b": "out\u00e9"}, error_message="quota"),
        ended_call(session, "large", arguments={"a": "in"}, result={"b": long}),
        ended_call(session, "erased", arguments={"a": "in"}, result={"b": "out"}),
    ]
    with transaction.atomic():
        payloads.erase_all([calls[2].arguments_id, calls[2].result_id], everywhere=False)
    fast = indexing._documents([call.uid for call in calls])
    assert fast == {call.uid: indexing.document_of(call) for call in Call.objects.all()}
    assert "outé" in fast[calls[0].uid].words
    assert "word word" in fast[calls[1].uid].words
    assert fast[calls[2].uid].words == ""


@pytest.mark.django_db
@pytest.mark.parametrize("it", CHECKS, ids=lambda it: it.__name__)
def test_on_sqlite(it: Check) -> None:
    it()


@pytest.mark.parametrize("it", CHECKS, ids=lambda it: it.__name__)
def test_on_postgresql(on_postgres: None, django_db_blocker: Any, it: Check) -> None:  # noqa: F811  the fixture
    with django_db_blocker.unblock():
        it()


@pytest.mark.django_db
def test_a_batch_is_written_once_and_in_bounded_pieces() -> None:
    session = make_session()
    for number in range(4):
        ended_call(session, f"tool{number}", arguments={"text": "x " * 30_000})
    first = indexing.next_batch()
    assert first is not None
    assert len(first.calls) == 3
    assert indexing.write(first)
    assert not indexing.write(first)
    second = indexing.next_batch()
    assert second is not None
    assert len(second.calls) == 1


@pytest.mark.django_db
def test_catching_up_goes_on_when_a_worker_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    ended_call(session, "first")
    read_before = indexing.next_batch()
    catch_up()
    ended_call(session, "second")
    batches = chain([read_before], iter(indexing.next_batch, None))
    monkeypatch.setattr(indexing, "next_batch", lambda: next(batches, None))
    catch_up()
    assert documents() == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def test_rows_that_are_deleted_leave_the_index(database: str, request: pytest.FixtureRequest) -> None:
    if database == "postgresql":
        request.getfixturevalue("on_postgres")
    session, admin = make_session(), reader()
    for number in range(3):
        ended_call(session, f"tool{number}", arguments={"word": "acme"})
    catch_up()
    first = Call.objects.order_by("pk")[0]
    first.delete()
    assert documents() == 3
    try:
        indexing.trim()
    finally:
        writing.reset()
    assert documents() == 2
    assert found(admin, "acme") == ["tool2", "tool1"]


def parts() -> int:
    """Those that hold words; FTS5 numbers the pages of a part after it, in 37 bits."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(DISTINCT id >> 37) FROM explorer_calls_data WHERE id > 10")
        return int(cursor.fetchone()[0])


def in_the_file(word: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT block FROM explorer_calls_data")
        return any(word.encode() in row[0] for row in cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_words_of_a_payload_that_a_person_erased_leave_the_file_with_the_next_housekeeping() -> None:
    session, admin = make_session(), reader()
    call = ended_call(session, "pay", arguments={"iban": "zq0012"})
    catch_up()
    for number in range(20):
        ended_call(session, f"tool{number}", arguments={"text": f"other{number}"})
        catch_up()
    try:
        indexing.purge()
        erase(Actor.of_user(admin), admin, Payload.objects.get(pk=call.arguments_id), "asked for", PayloadContext())
        assert found(admin, "zq0012") == []
        assert in_the_file("zq0012")
        portions: list[bool] = []
        indexing.purge(lambda: portions.append(True))
        assert not in_the_file("zq0012")
        assert found(admin, "other7") == ["tool7"]
        assert portions
        portions.clear()
        indexing.purge(lambda: portions.append(True))
        assert not portions, "once for each erasure"
    finally:
        writing.reset()


def pages() -> set[tuple[int, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, LENGTH(block) FROM explorer_calls_data")
        return set(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_many_small_writes_leave_few_parts_of_the_index_and_lose_no_word() -> None:
    earlier = parts()
    for number in range(60):
        with transaction.atomic():
            fulltext.write("calls", [fulltext.Document(number + 1, "user1", f"tool{number}", f"acme word{number}")])
    assert parts() == earlier + 60, "a transaction that writes does not merge"
    try:
        indexing.merge()
    finally:
        writing.reset()
    assert parts() < 12
    everything = fulltext.Match([Value("acme", False)], words=True).keys("calls", None, None, 100)
    one = fulltext.Match([Value("word7", False)], words=True).keys("calls", None, None, 100)
    for keys, expected in ((everything, 60), (one, 1)):
        with connection.cursor() as cursor:
            cursor.execute(keys.sql, keys.params)
            assert len(cursor.fetchall()) == expected


@pytest.mark.django_db(transaction=True)
def test_one_portion_of_a_merge_writes_few_pages_however_much_is_due() -> None:
    for start in range(0, 4_000, 1_000):
        words = (
            (number, " ".join(f"w{number}x{other}" for other in range(60))) for number in range(start, start + 1_000)
        )
        with transaction.atomic():
            fulltext.write("calls", [fulltext.Document(number + 1, "user1", "echo", text) for number, text in words])
    before, portions = pages(), 0
    assert len(before) > 300
    while fulltext.merge():
        after, portions = pages(), portions + 1
        assert len(after - before) < 60
        before = after
    assert portions > 5
