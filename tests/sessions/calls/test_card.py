"""The call card escapes hostile results, bounds large ones, and distinguishes the kinds of failure."""

import base64
import html as html_of
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from servers.audit import payloads
from servers.enums import PayloadKind, TransportKind
from servers.models import Server
from sessions.calls import blocks as result_blocks
from sessions.calls import card as call_card
from sessions.calls.rpc_codes import name_of
from sessions.connections import commands
from sessions.enums import CallState
from sessions.models import Call, ServerTask

pytestmark = pytest.mark.django_db
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


@pytest.fixture
def call() -> Call:
    server = Server.objects.create(slug="demo", name="Demo", transport=TransportKind.STDIO, command="true")
    now = timezone.now()
    return Call.objects.create(
        session=commands.shared_session(server),
        server=server,
        server_name="Demo",
        identity_name="shared",
        user_name="ada",
        target="<img src=x onerror=alert(1)>",
        arguments=payloads.store(PayloadKind.ARGUMENTS, "{}"),
        deadline=now,
        created_at=now,
    )


def over(call: Call, state: CallState, result: Any = None, **fields: Any) -> Call:
    call.state, call.sent_at, call.finished_at = state, timezone.now(), timezone.now()
    if result is not None:
        call.result = payloads.store(PayloadKind.RESULT, json.dumps(result))
    for name, value in fields.items():
        setattr(call, name, value)
    call.save()
    return call


def html(call: Call, may_read: bool = True) -> str:
    return render_to_string("calls/_card.html", {"call": call, "may_read": may_read})


@pytest.mark.parametrize(
    ("done", "total", "percent"),
    [(3, 4, 75), (1.7e308, 1.7e308, 100), (1, 5e-324, 100), (1.7e308, 1, 100), (-1.7e308, 1, 0), (9, 4, 100)],
)
def test_a_card_shows_progress_of_any_size(call: Call, done: float, total: float, percent: int) -> None:
    call.state, call.progress, call.progress_total = CallState.SENT, done, total
    assert f'value="{percent}"' in html(call)


def test_a_running_call_has_a_progress_bar_and_can_be_cancelled(call: Call) -> None:
    call.state, call.progress, call.progress_total = CallState.SENT, 3, 4
    shown = html(call)
    assert 'role="progressbar"' in shown
    assert 'value="75"' in shown
    assert "data-cancel-call" in shown


def test_a_call_that_waits_for_approval_has_no_progress_yet(call: Call) -> None:
    call.state = CallState.HELD
    shown = html(call)
    assert "data-call-progress" not in shown
    assert "data-cancel-call" in shown


def test_a_running_call_says_for_how_long_and_one_that_is_over_does_not(call: Call) -> None:
    call.state, call.sent_at = CallState.SENT, timezone.now() - timedelta(minutes=2, seconds=5)
    assert re.search(r'running for <time class="num" datetime="[^"]+Z" data-elapsed>2 min 0\d s</time>', html(call))
    assert "data-elapsed" not in html(over(call, CallState.SUCCEEDED, {"content": []}))


def test_the_three_failures_look_different(call: Call) -> None:
    result = {"content": [{"type": "text", "text": "no such order"}], "isError": True}
    tool = html(over(call, CallState.TOOL_ERROR, result))
    assert "The tool reported an error" in tool
    assert "no such order" in tool
    call.result = None
    rpc = html(over(call, CallState.RPC_ERROR, error_code=-32602, error_message="<b>bad</b>", error_data='{"why": 1}'))
    assert "-32602" in rpc
    assert "Invalid params" in rpc
    assert "&lt;b&gt;bad" in rpc
    assert "why" in rpc
    lost = html(over(call, CallState.FAILED, fault="connection_refused", detail="port 1 refused"))
    assert "The connection failed" in lost
    assert "Nothing is listening" in lost
    for one, other in ((tool, "JSON-RPC error"), (rpc, "connection failed"), (lost, "tool reported")):
        assert other not in one


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        ("connection_lost", "The connection failed: The connection was lost"),
        ("access_refused", "The request failed: The server refused access"),
        ("http_status", "The request failed: The server answered with an HTTP error"),
        ("no_answer", "Unusable answer: The server closed the stream without an answer"),
        ("input_refused", "The call failed: The server"),
        ("not_ready", "The call failed: The session is not open"),
    ],
)
def test_only_a_connection_that_failed_is_called_one(call: Call, fault: str, title: str) -> None:
    assert title in html(over(call, CallState.FAILED, fault=fault, detail="It went wrong."))


@pytest.mark.parametrize(
    ("state", "fault", "words"),
    [
        (
            CallState.FAILED,
            "task_cancelled",
            "The server cancelled the task 'a1'. The server says: \"closed for today\"",
        ),
        (CallState.FAILED, "task_lost", "The server no longer knows the task 'a1': it expired or was deleted."),
        (CallState.NOT_SENT, "closed", "The session was closed."),
    ],
)
def test_a_call_that_the_server_withdrew_says_so_once(call: Call, state: CallState, fault: str, words: str) -> None:
    shown = html_of.unescape(html(over(call, state, fault=fault, detail=words)))
    assert shown.count(words[:22]) == 1
    assert words in shown


def test_the_words_of_the_server_in_a_failure_are_for_those_who_may_read_results(call: Call) -> None:
    failed = over(call, CallState.FAILED, fault="http_status", detail='Failed (HTTP 500). The server says: "row 17"')
    assert "row 17" in html(failed)
    assert "row 17" not in html(failed, may_read=False)
    assert "Failed (HTTP 500)." in html(failed, may_read=False)


def test_the_last_progress_stays_on_the_card(call: Call) -> None:
    call.progress, call.progress_total, call.progress_message = 3, 4, "step 3"
    shown = html(over(call, CallState.OUTCOME_UNKNOWN))
    assert 'Last progress: <span class="num">3 of 4</span>' in shown
    for done, total, words in (
        (1_234_567, 5_000_000, "1,234,567 of 5,000,000"),
        (10_485_760.0, None, "10,485,760"),
        (0.5, 1.5, "0.5 of 1.5"),
        (1e300, float("inf"), "1e+300 of inf"),
    ):
        call.progress, call.progress_total = done, total
        assert call_card.card_of(call, may_read=True).steps_completed == words
    assert "3 of 4" in shown
    assert "step 3" in shown


def test_a_refused_answer_says_that_the_tool_may_have_run(call: Call) -> None:
    shown = html(over(call, CallState.FAILED, fault="message_limit", detail="9 MiB"))
    assert "Refused: message limit" in shown
    assert "may have run" in shown


def test_an_unknown_outcome_offers_to_run_again_and_says_what_it_means(call: Call) -> None:
    shown = html(over(call, CallState.OUTCOME_UNKNOWN))
    assert "<b>Outcome unknown</b>" in shown
    assert "does not repeat it" in shown
    assert f"/calls/{call.uid}/repeat/" in shown


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-32700, "Parse error"),
        (-32042, "URL elicitation"),
        (-32000, "commonly"),
        (-32050, "chosen by the server"),
        (7, "own code"),
    ],
)
def test_codes_have_names(code: int, name: str) -> None:
    assert name in name_of(code)


def test_nothing_of_a_server_becomes_markup(call: Call) -> None:
    evil = "<script>alert(1)</script>\u202e"
    content = [
        {"type": "text", "text": evil},
        {"type": "resource_link", "uri": "javascript:alert(1)", "name": evil},
        {"type": "resource", "resource": {"uri": evil, "text": evil}},
        {"type": evil, "x": evil},
        {"type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zz4="},
        {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"<svg onload=alert(1)>").decode()},
        evil,
    ]
    structured = {evil: evil}
    shown = html(over(call, CallState.SUCCEEDED, {"content": content, "structuredContent": structured}))
    assert "<script" not in shown
    assert "<svg onload" not in shown
    assert "<img src=x" not in shown
    assert "data:image" not in shown
    assert 'href="javascript' not in shown
    assert "\u202e" not in shown


def test_an_image_of_a_known_type_is_shown_inline(call: Call) -> None:
    content = [{"type": "image", "mimeType": "image/png", "data": PNG}]
    shown = html(over(call, CallState.SUCCEEDED, {"content": content}))
    assert f'src="/calls/{call.uid}/contents/0/"' in shown
    assert "data:image" not in shown


def test_what_a_card_cannot_carry_itself_is_shown_from_its_own_address(call: Call) -> None:
    big = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 250_000).decode()
    content = [{"type": "image", "mimeType": "image/png", "data": big}] * 3
    blocks = result_blocks.blocks_of(content)
    assert [(block.kind, bool(block.source)) for block in blocks] == [
        ("image", True),
        ("image", False),
        ("image", False),
    ]
    shown = html(over(call, CallState.SUCCEEDED, {"content": content}))
    assert "data:image" not in shown
    for position in range(3):
        assert f'src="/calls/{call.uid}/contents/{position}/"' in shown
    assert [f'href="/calls/{call.uid}/contents/{position}/"' in shown for position in range(4)] == [True] * 3 + [False]


def test_an_image_of_several_megabytes_is_shown_and_can_be_downloaded(call: Call) -> None:
    huge = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 4_000_000).decode()
    shown = html(
        over(call, CallState.SUCCEEDED, {"content": [{"type": "image", "mimeType": "image/png", "data": huge}]})
    )
    assert f'src="/calls/{call.uid}/contents/0/"' in shown
    assert len(shown) < 700_000


def test_a_structured_result_that_is_one_text_shows_the_text_first(call: Call) -> None:
    for content in ([{"type": "text", "text": "It rains."}], [{"type": "text", "text": '{"result": "It rains."}'}], []):
        shown = html(
            over(call, CallState.SUCCEEDED, {"content": content, "structuredContent": {"result": "It rains."}})
        )
        card = call_card.card_of(call, may_read=True)
        assert card.result is not None
        assert [tab.key for tab in card.result.tabs] == ["c", "s", "r"]
        assert [(block.kind, block.text) for block in card.result.view.blocks] == [("text", "It rains.")]
        assert shown.index("It rains.</pre>") < shown.index("Structured result")
    over(call, CallState.SUCCEEDED, {"content": [], "structuredContent": {"result": "It rains.", "degrees": 9}})
    assert [tab.key for tab in call_card.card_of(call, may_read=True).result.tabs] == ["s", "r"]


def test_a_structured_result_too_large_for_a_tree_keeps_its_tab_and_says_so(call: Call) -> None:
    rows = [{"id": number, "text": "x" * 50} for number in range(18_000)]
    over(
        call, CallState.SUCCEEDED, {"content": [{"type": "text", "text": "many"}], "structuredContent": {"rows": rows}}
    )
    for brief in (False, True):
        shown = render_to_string("calls/_card.html", {"call": call, "may_read": True, "brief": brief})
        assert ">Structured</button>" in shown
        assert "too large to show here" in shown
        assert f"/calls/{call.uid}/structured.json" in shown
        assert "many" in shown
        assert len(shown) < 700_000


def test_a_card_that_has_to_be_brief_shows_its_images_from_their_addresses_and_the_beginnings_of_texts(
    call: Call,
) -> None:
    content = [{"type": "image", "mimeType": "image/png", "data": PNG}, {"type": "text", "text": "y" * 200_000}]
    over(call, CallState.SUCCEEDED, {"content": content})
    shown = render_to_string("calls/_card.html", {"call": call, "may_read": True, "brief": True})
    assert f'src="/calls/{call.uid}/contents/0/"' in shown
    assert "Truncated" in shown


def test_a_link_to_a_resource_opens_the_page_of_that_resource(call: Call) -> None:
    link = {"type": "resource_link", "uri": "demo://a?b=1&c", "name": "A"}
    shown = html(over(call, CallState.SUCCEEDED, {"content": [link, link | {"uri": "x:" + "y" * 3_000}]}))
    assert shown.count('href="/servers/demo/resources/?uri=demo%3A%2F%2Fa%3Fb%3D1%26c"') == 1
    assert shown.count("Open resource") == 1


def test_json_text_becomes_a_tree_and_what_only_looks_like_it_stays_text() -> None:
    good, bad = result_blocks.blocks_of([{"type": "text", "text": '{"a": 1}'}, {"type": "text", "text": "{a}"}])
    assert (good.kind, good.value) == ("json", {"a": 1})
    assert (bad.kind, bad.text) == ("text", "{a}")


@pytest.mark.parametrize("content", [None, "x", 5, {}, [None], [[]], [{"type": None}], [{"type": "text", "text": 5}]])
def test_malformed_content_is_shown_not_raised(call: Call, content: Any) -> None:
    assert "Raw" in html(over(call, CallState.SUCCEEDED, {"content": content}))


def test_a_large_result_is_cut_and_can_be_downloaded(call: Call) -> None:
    over(call, CallState.SUCCEEDED, {"content": [{"type": "text", "text": "x" * 3_000_000}]})
    card = call_card.card_of(call, may_read=True)
    assert card.result is not None
    assert card.result.cut
    assert len(card.result.raw) == call_card.RAW_CHARS
    shown = html(call)
    assert len(shown) < 700_000
    assert f"/calls/{call.uid}/result.json" in shown


def test_without_permission_neither_arguments_nor_result_are_shown(call: Call) -> None:
    over(call, CallState.SUCCEEDED, {"content": [{"type": "text", "text": "the-answer"}]})
    assert "the-answer" not in html(call, may_read=False)


def test_an_erased_result_says_so(call: Call) -> None:
    over(call, CallState.SUCCEEDED, {"content": []})
    payloads.erase(call.result)
    assert "was erased" in html(call)


def test_a_call_that_needs_more_permission_says_which_and_leads_to_the_sign_in(call: Call) -> None:
    words = "The server requires more permissions (write)."
    shown = html(over(call, CallState.FAILED, fault="insufficient_scope", detail=words))
    assert words in shown
    assert f'href="/servers/{call.server.slug}/sign-in/"' in shown
    assert "data-needs-sign-in" in shown
    assert "/sign-in/" not in html(over(call, CallState.FAILED, fault="forbidden", detail="No."))


def test_a_call_of_ones_own_identity_leads_to_the_sign_in_of_that_identity(call: Call) -> None:
    shown = html(over(call, CallState.FAILED, fault="insufficient_scope", personal=True))
    assert f'href="/servers/{call.server.slug}/identity/sign-in/"' in shown
    assert f'href="/servers/{call.server.slug}/sign-in/"' not in shown
    assert "data-needs-call-tool" in shown.split("Sign in to allow more")[0]


def test_the_card_says_whether_the_result_is_valid_and_where_it_is_not(call: Call) -> None:
    result = {"content": [], "structuredContent": {"n": 1}}
    assert "Valid<" in html(over(call, CallState.SUCCEEDED, result, schema_valid=True))
    words = "/n: must be a string.\n/a/b: is required: <b>"
    page = html(over(call, CallState.SUCCEEDED, result, schema_valid=False, schema_violation=words))
    assert "Invalid<" in page
    assert '<code class="wraps">/a/b</code> is required: &lt;b&gt;' in page
    page = html(over(call, CallState.SUCCEEDED, result, schema_valid=None, schema_violation="Not checked: too busy."))
    assert "was not checked" in page
    assert "too busy." in page
    assert "alid<" not in html(over(call, CallState.SUCCEEDED, result, schema_valid=None, schema_violation=""))


def test_a_result_that_is_none_of_a_tool_is_not_blamed_on_its_output_schema(call: Call) -> None:
    words = "The result has no list “content”."
    page = html(over(call, CallState.SUCCEEDED, {}, schema_valid=None, schema_violation=words))
    assert "The result violates the protocol" in page
    assert "output schema" not in page


def test_a_large_structured_result_is_loaded_page_by_page_and_each_row_once(call: Call, admin_client: Any) -> None:
    rows = [{"id": number, "a/b": [number]} for number in range(2_500)]
    over(call, CallState.SUCCEEDED, {"content": [], "structuredContent": {"rows~": rows}})
    shown = html(call)
    seen = re.findall(r'<details data-i="(\d+)"', shown)
    while match := re.search(r'hx-get="([^"]*at=%2Frows~0&amp;from=[^"]*)"', shown):
        response = admin_client.get(html_of.unescape(match[1]))
        assert response.status_code == 200
        shown = response.content.decode()
        seen += re.findall(r'<details data-i="(\d+)"', shown)
    assert sorted(set(map(int, seen))) == list(range(2_500))
    for query in ("at=/rows~0/x&from=0", "at=/none&from=0", "at=/rows~0&from=-1", "at=/rows~0/0/id&from=0"):
        assert admin_client.get(f"/calls/{call.uid}/part/?{query}").status_code == 404


def test_a_result_with_nothing_in_it_says_so(call: Call) -> None:
    assert "The tool returned no content." in html(over(call, CallState.SUCCEEDED, {"content": []}))
    text = {"content": [{"type": "text", "text": "something"}]}
    assert "returned no content" not in html(over(call, CallState.SUCCEEDED, text))


def late(call: Call, state: CallState, result: Any, **fields: Any) -> Call:
    fields |= {"late_result": payloads.store(PayloadKind.RESULT, json.dumps(result))}
    return over(call, state, **fields)


def test_a_late_error_is_shown_as_the_error_that_it_is(call: Call) -> None:
    error = {"code": -32603, "message": "Request <cancelled>", "data": {"why": "told"}}
    shown = html(late(call, CallState.CANCELLED, {"error": error}))
    assert "Late answer: JSON-RPC error" in shown
    assert "Internal error" in shown
    assert "Request &lt;cancelled&gt;" in shown
    assert "told" in shown
    assert "returned no content" not in shown
    hidden = html(call, may_read=False)
    assert "Late answer" in hidden
    assert "Request &lt;" not in hidden


@pytest.mark.parametrize("error", [{}, {"code": "x", "message": 5}, {"code": True, "data": []}])
def test_a_late_error_may_have_any_form(call: Call, error: dict[str, Any]) -> None:
    assert "Late answer: JSON-RPC error" in html(late(call, CallState.CANCELLED, {"error": error}))


def test_a_late_answer_that_only_names_a_task_is_not_an_empty_result(call: Call) -> None:
    shown = html(late(call, CallState.CANCELLED, {"task": {"taskId": "t1", "status": "working"}}))
    assert "reported the call&#x27;s task only after the call had ended" in shown
    assert "returned no content" not in shown


def test_a_late_answer_says_whether_the_tool_reported_an_error(call: Call) -> None:
    content = [{"type": "text", "text": "no such order"}]
    shown = html(late(call, CallState.OUTCOME_UNKNOWN, {"content": content, "isError": True}))
    assert "Late answer: the tool reported an error" in shown
    assert "no such order" in shown
    assert "reported an error" not in html(late(call, CallState.OUTCOME_UNKNOWN, {"content": content}))
    assert "returned no content" in html(late(call, CallState.OUTCOME_UNKNOWN, {"content": []}))


def test_an_answer_that_came_late_is_not_said_to_be_lost(call: Call) -> None:
    assert "its answer was lost" in html(over(call, CallState.OUTCOME_UNKNOWN))
    shown = html(late(call, CallState.OUTCOME_UNKNOWN, {"content": []}, detail="Too slow."))
    assert "Too slow. Its answer came after the call had ended." in shown
    assert "lost" not in shown


def test_a_call_whose_task_is_followed_on_says_so(call: Call) -> None:
    now = timezone.now()
    over(call, CallState.OUTCOME_UNKNOWN)
    ServerTask.objects.create(call=call, task_id="t", status="working", begun_at=now, changed_at=now, seen_at=now)
    assert "The server runs it as a task, whose result will be shown here." in html(call)


def test_a_call_that_was_cancelled_with_its_session_says_so(call: Call) -> None:
    words = "Cancelled because the session was closed. The tool may have run."
    shown = html(over(call, CallState.CANCELLED, detail=words, may_have_run=True))
    assert "Cancelled because the session was closed. The server was notified. MCP does not confirm" in shown
    shown = html(over(call, CallState.CANCELLED, detail="Cancelled while it ran. The tool may have run."))
    assert ">The server was notified." in shown
