"""What a stored result becomes for an agent, and that a large one does not hold up the others."""

import json
import threading
from functools import partial
from typing import Any, cast

import pytest
from django.utils import timezone

from servers import limits
from servers.audit import payloads
from servers.bundles import uris
from servers.enums import PayloadKind
from sessions.agents import asgi
from sessions.agents.calls import outcomes
from sessions.agents.calls.outcomes import Ended
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import BundleRoute, Exchange
from sessions.enums import CallState
from sessions.mcp.core import json_text
from sessions.mcp.core.versions import Era
from sessions.mcp.server import posted
from sessions.mcp.server.refusals import Refusal
from sessions.models import Call
from tests.sessions.agents.door import LEGACY, MODERN, Door, make_listed, token_of

ASKED = {"a": {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}}
ECHO = {"name": "echo", "arguments": {}}
LINK = {"type": "resource_link", "uri": "test://a", "name": "a"}
VIA = BundleRoute("Team", "web__t", partial(uris.exposed_uri, "web"))


def told(text: str, era: Era, method: str = "tools/call", via: BundleRoute | None = None) -> bytes:
    revision = MODERN if era is Era.MODERN else LEGACY
    exchange = Exchange(cast("Entry", None), era, revision, 1, method, {"name": "t"}, {}, "", "", via=via)
    return outcomes.message(exchange, Ended(Call(state=CallState.SUCCEEDED, server_name="Web", target="t"), text))


def test_a_legacy_agent_that_joined_a_call_which_requires_input_is_told_so() -> None:
    text = json.dumps({"resultType": "input_required", "inputRequests": ASKED})
    result = json.loads(told(text, Era.LEGACY))["result"]
    assert result["isError"] is True
    assert "Web asks for input" in result["content"][0]["text"]
    with pytest.raises(Refusal, match="Web asks for input"):
        told(text, Era.LEGACY, "resources/read")


@pytest.mark.parametrize(
    ("state", "code", "safe"),
    [(CallState.REFUSED, 4030, None), (CallState.EXPIRED, 5030, True), (CallState.FAILED, -32603, True)],
)
def test_a_reading_may_be_repeated_unless_a_person_refused_it(state: CallState, code: int, safe: bool | None) -> None:
    exchange = Exchange(cast("Entry", None), Era.MODERN, MODERN, 1, "resources/read", {"uri": "a:b"}, {}, "", "")
    call = Call(state=state, server_name="Web", target="a:b", detail="Refused by ada.")
    with pytest.raises(Refusal, match="Web: Refused by ada") as refused:
        outcomes.message(exchange, Ended(call, None))
    found = refused.value
    assert (found.status, found.code, found.data.get("retrySafe")) == (200, code, safe)
    assert (found.data["reason"], found.data["call"]) == (state.value, str(call.uid))


@pytest.mark.parametrize(
    ("detail", "may_have_run", "words"),
    [
        ("Cancelled while it ran. The tool may have run.", True, "while it ran, so the tool may have run partially."),
        (
            "Cancelled because the session was closed. The tool may have run.",
            True,
            "while it ran, so the tool may have run partially. Cancelled because the session was closed.",
        ),
        (
            "It was waiting for someone to open a page, and the server had not run it.",
            False,
            "before it ran. It did not run.",
        ),
    ],
)
def test_an_agent_learns_why_its_call_was_cancelled_and_whether_it_ran(
    detail: str, may_have_run: bool, words: str
) -> None:
    call = Call(state=CallState.CANCELLED, server_name="Web", target="t", method="tools/call", sent_at=timezone.now())
    call.detail, call.may_have_run = detail, may_have_run
    exchange = Exchange(cast("Entry", None), Era.MODERN, MODERN, 1, "tools/call", {"name": "t"}, {}, "", "")
    result = json.loads(outcomes.message(exchange, Ended(call, None)))["result"]
    assert result["content"][0]["text"] == f"t was cancelled {words}"


@pytest.mark.parametrize("via", [None, VIA])
@pytest.mark.parametrize("era", list(Era))
@pytest.mark.parametrize(
    "result",
    [
        {"content": [LINK], "structuredContent": {"a": [1, 2, {"b": ']}\\"'}]}, "_meta": {"x": 1}},
        {"structuredContent": {"a": 1}, "content": [], "isError": "no", "resultType": "complete"},
        {"content": [], "structuredContent": [1, 2]},
        {"content": [], "structuredContent": "text"},
        {"structuredContent": {"a": 1}},
        {"content": "plain", "structuredContent": {}},
        {"content": [{"type": "text", "text": '{"structuredContent":1}'}]},
    ],
)
def test_structured_content_that_is_not_parsed_is_the_same(
    monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], era: Era, via: BundleRoute | None
) -> None:
    text = json.dumps(result)
    parsed = told(text, era, via=via)
    monkeypatch.setattr(outcomes, "MANY_VALUES", 0)
    assert json.loads(told(text, era, via=via)) == json.loads(parsed)


def test_structured_content_of_many_values_is_passed_on_as_it_is() -> None:
    many = json.dumps([[0]] * outcomes.MANY_VALUES)  # with blanks, which no encoder of ours writes
    text = f'{{"content":[],"structuredContent":{{"rows":{many}}}}}'
    assert many.encode() in told(text, Era.MODERN)


@pytest.mark.parametrize("written", [{}, {"s": 1}, {"s": '\\"', "a": []}, {"a": {"s": 2}, "s": [{}, "]"]}, {"a": 1}])
@pytest.mark.parametrize("separators", [(",", ":"), (" , ", " : ")])
def test_a_member_is_taken_out_of_a_text(written: dict[str, Any], separators: tuple[str, str]) -> None:
    rest, value = json_text.without(json.dumps(written, separators=separators), "s")
    assert json.loads(rest) == {name: one for name, one in written.items() if name != "s"}
    assert (json.loads(value) if value else None) == written.get("s")


def test_a_string_of_many_escapes_is_one_value() -> None:
    text = json.dumps({"s": '\\"' * 20_000, "a": 1})
    assert json.loads(json_text.without(text, "s")[0]) == {"a": 1}


# --- beside the other agents ------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
async def test_a_large_result_and_a_large_request_are_read_in_a_thread(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    def noted(name: str, act: Any) -> Any:
        def run(*given: Any) -> Any:
            seen.append((name, threading.current_thread().name.partition("_")[0]))
            return act(*given)

        return run

    monkeypatch.setattr(outcomes, "message", noted("result", outcomes.message))
    monkeypatch.setattr(posted, "parse", noted("request", posted.parse))
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    main = threading.current_thread().name
    for size, where in ((10, main), (200_000, "live-work")):
        seen.clear()
        asked = door.modern(token, "files", "tools/call", {"name": "echo", "arguments": {"a": "x" * size}})
        call = await door.viewed()
        await door.thread(finish, call, "x" * size)
        door.hint(f"call.{call}")
        assert len((await asked.response())["result"]["content"][0]["text"]) == size
        assert seen == [("request", where), ("result", where)]


def finish(call: Any, text: str) -> None:
    result = payloads.store(PayloadKind.RESULT, json.dumps({"content": [{"type": "text", "text": text}]}))
    Call.objects.filter(uid=call).update(state=CallState.SUCCEEDED, result=result)


@pytest.mark.django_db(transaction=True)
async def test_a_request_of_too_many_values_is_refused_before_it_is_parsed(
    ada: Any, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    await door.thread(make_listed, "files")
    token = await door.thread(token_of, ada)
    monkeypatch.delattr(asgi.posted, "parse")
    values = [0] * limits.number("agent_body_values")
    asked = door.modern(token, "files", "tools/call", {"name": "echo", "arguments": {"a": values}})
    found = await asked.response()
    assert (asked.status, found["error"]["code"]) == (413, -32600)
    assert limits.stated("agent_body_values") in found["error"]["message"]
