"""The table of a long result, page by page: of a text, and of a structured part that is too large for a tree."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.enums import PayloadKind
from sessions.calls.blocks import TEXT_CHARS
from sessions.enums import CallState
from sessions.models import Call
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = [{"id": number, "name": f"<b>row {number}", "note": "x" * 300} for number in range(4_000)]
TEXT = json.dumps({"total": len(ROWS), "rows": ROWS})


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def client() -> Client:
    found = Client()
    found.force_login(person("carla", "view_server", "call_tool", "view_payload"))
    return found


def ended(result: dict[str, Any]) -> Call:
    call = make_call(make_session("orders"), "echo", text="a")
    stored = payloads.store(PayloadKind.RESULT, json.dumps(result))
    Call.objects.filter(pk=call.pk).update(state=CallState.SUCCEEDED, result=stored, finished_at=timezone.now())
    return call


def test_a_long_text_is_a_table_by_pages_that_is_sorted_and_copied_whole(client: Client) -> None:
    assert len(TEXT) > TEXT_CHARS
    call = ended({"content": [{"type": "text", "text": "short"}, {"type": "text", "text": TEXT}]})
    address = f"/calls/{call.uid}/table/1/"
    assert address in client.get(f"/calls/{call.uid}/card/").content.decode()
    whole = client.get(address).content.decode()
    assert "data-long-table" in whole
    assert "1–100 of 4,000 rows" in whole
    assert "of <code>rows</code>" in whole
    assert "&lt;b&gt;row 99<" in whole
    assert "row 100<" not in whole
    assert len(whole) < 150_000
    last = client.get(address, {"from": "3950", "sort": "0", "order": "desc"}).content.decode()
    assert "data-long-table" not in last
    assert "3,901–4,000 of 4,000 rows, sorted descending" in last
    assert last.index(">99<") < last.index(">0<")
    assert 'aria-sort="descending"' in last
    beyond = client.get(address, {"from": "9" * 18, "sort": "77"}).content.decode()
    assert "3,901–4,000 of 4,000 rows<" in beyond
    answer = client.get(f"{address}rows.csv", {"sort": "0", "order": "desc", "hidden": ["2", "x"]})
    assert answer["Content-Disposition"] == f'attachment; filename="call-{call.pk}-1.csv"'
    lines = answer.content.decode().split("\r\n")
    assert (lines[0], lines[1], len(lines)) == ('"id","name"', '"3999","<b>row 3999"', 4_001)


def test_a_structured_part_that_is_too_large_for_a_tree_is_a_table(client: Client) -> None:
    call = ended({"content": [], "structuredContent": {"rows": ROWS}})
    address = f"/calls/{call.uid}/table/structured/"
    assert address in client.get(f"/calls/{call.uid}/card/").content.decode()
    assert "1–100 of 4,000 rows" in client.get(address).content.decode()


def test_what_is_no_list_of_similar_objects_says_so_and_what_does_not_exist_is_not_found(client: Client) -> None:
    text = json.dumps([{str(number): "x" * 400} for number in range(400)])
    call = ended({"content": [{"type": "text", "text": text}, {"type": "image", "data": "AAAA"}]})
    assert "No table:" in client.get(f"/calls/{call.uid}/table/0/").content.decode()
    for part in ("1", "2", "other"):
        assert client.get(f"/calls/{call.uid}/table/{part}/").status_code == 404
    assert client.get(f"/calls/{call.uid}/table/0/rows.csv").status_code == 404


def test_a_table_needs_permission_to_read_results(client: Client) -> None:
    call = ended({"content": [{"type": "text", "text": TEXT}]})
    other = Client()
    other.force_login(person("otto", "view_server", "call_tool"))
    for address in (f"/calls/{call.uid}/table/0/", f"/calls/{call.uid}/table/0/rows.csv"):
        assert other.get(address).status_code == 403
