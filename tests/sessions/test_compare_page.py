"""Two calls side by side: what differs in arguments and results, for those who may read both."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.enums import PayloadKind
from sessions.differences.text import SHOWN_LINES
from sessions.enums import CallState
from sessions.mcp.core.methods import PROMPTS_GET, TOOLS_CALL
from sessions.models import Call, McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session

pytestmark = pytest.mark.django_db(transaction=True)
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


def ended(session: McpSession, user: Any, text: str, result: dict[str, Any] | None) -> Call:
    call = make_call(session, "echo", text=text)
    stored = payloads.store(PayloadKind.RESULT, json.dumps(result)) if result is not None else None
    Call.objects.filter(pk=call.pk).update(
        user=user, state=CallState.SUCCEEDED, result=stored, finished_at=timezone.now()
    )
    return call


def test_what_is_too_long_for_the_page_is_offered_whole() -> None:
    carla = person("carla", "view_server", "call_tool")
    client = Client()
    client.force_login(carla)
    session = make_session("one")
    short = ended(session, carla, "a", {"content": []})
    long = ended(session, carla, "b" * 100_000, {"content": [{"type": "text", "text": "c" * 100_000}]})
    page = client.get(f"/calls/{short.uid}/compare/{long.uid}/").content.decode()
    assert page.count("these are the first 100,000 characters") == 2
    assert all(f'href="/calls/{long.uid}/{name}.json"' in page for name in ("arguments", "result"))
    assert f'href="/calls/{short.uid}/arguments.json"' not in page


def test_lines_that_are_not_shown_are_counted_and_are_below() -> None:
    carla = person("carla", "view_server", "call_tool")
    client = Client()
    client.force_login(carla)
    session = make_session("one")
    texts = ("start\n", "start\n" + "".join(f"line {number}\n" for number in range(SHOWN_LINES // 2 + 1)))
    calls = [ended(session, carla, "a", {"content": [{"type": "text", "text": text}]}) for text in texts]
    page = client.get(f"/calls/{calls[0].uid}/compare/{calls[1].uid}/").content.decode()
    assert "1 more changed line not shown. Both calls are below in full." in page
    assert "Download both versions" not in page


@pytest.mark.parametrize(
    ("method", "results", "path"),
    [
        (
            PROMPTS_GET,
            [
                {"messages": [{"role": role, "content": {"type": "text", "text": "A"}}]}
                for role in ("user", "assistant")
            ],
            "$.fields.role",
        ),
        (
            TOOLS_CALL,
            [{"content": [{"type": "resource", "resource": {"uri": uri, "text": "A"}}]} for uri in ("x://1", "x://2")],
            "$.fields.resource.uri",
        ),
    ],
    ids=["role", "uri"],
)
def test_equal_texts_of_another_role_or_address_differ(
    client: Client, method: str, results: list[dict[str, Any]], path: str
) -> None:
    carla = person("carla", "view_server", "call_tool")
    client.force_login(carla)
    session = make_session("one")
    one, two = (ended(session, carla, "a", result) for result in results)
    Call.objects.update(method=method)
    page = client.get(f"/calls/{one.uid}/compare/{two.uid}/").content.decode()
    assert "Other fields changed" in page
    assert path in page
    again = ended(session, carla, "a", results[0])
    Call.objects.update(method=method)
    assert client.get(f"/calls/{one.uid}/compare/{again.uid}/").content.decode().count("No differences.") == 2


def test_two_calls_of_two_servers_are_compared_by_value_and_by_line() -> None:
    carla = person("carla", "view_server", "call_tool")
    client = Client()
    client.force_login(carla)
    lines = {"type": "text", "text": f"same\n{EVIL}"}
    one = ended(make_session("one"), carla, "a", {"content": [lines], "structuredContent": {"n": 1, "kept": True}})
    fields = {"content": [lines | {"text": "same\nother"}], "structuredContent": {"n": 2, "kept": True}}
    two = ended(make_session("two"), carla, "b", fields)
    bare = ended(two.session or make_session("three"), carla, "a", None)

    chosen = client.get(f"/calls/{two.uid}/compare/").content.decode()
    assert chosen.index(f'value="{one.uid}"') < chosen.index("checked") < chosen.index(f'value="{bare.uid}"')
    by_number = client.get(f"/calls/{one.uid}/compare/", {"number": f"#{two.pk}"})
    assert by_number["Location"] == f"/calls/{one.uid}/compare/{two.uid}/"
    for entered, words in (
        ("12a", "Enter the number of a call, such as #123."),
        ("0", "Enter the number of a call, such as #123."),
        (f"#{one.pk}", f"Call #{one.pk} is this call."),
        ("999999", "Call #999999 does not exist"),
    ):
        refused = client.get(f"/calls/{one.uid}/compare/", {"number": entered}).content.decode()
        assert words in refused
        assert f'value="{entered}"' in refused
    page = client.get(f"/calls/{two.uid}/compare/{one.uid}/").content.decode()
    assert page.index(f">#{one.pk}<") < page.index(f">#{two.pk}<", page.index("side-1"))
    assert "$.text" in page
    assert "$.n" in page
    assert "$.kept" not in page
    assert "1 line added, 1 removed" in page
    assert EVIL not in page
    page = client.get(f"/calls/{one.uid}/compare/{bare.uid}/").content.decode()
    assert "No differences." in page
    assert page.count(f"Call #{bare.pk} has no result.") == 2, "where it is compared and where it is shown"

    other = Client()
    other.force_login(person("otto", "view_server", "call_tool"))
    assert other.get(f"/calls/{one.uid}/compare/{two.uid}/").status_code == 403
