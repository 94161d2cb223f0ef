"""What the card shows of hostile and odd results, and how the failures differ."""

import base64
import json
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils import timezone

from servers.audit import payloads
from servers.enums import PayloadKind, TransportKind
from servers.models import Server
from sessions.domain import call_card, commands, result_blocks
from sessions.domain.rpc_codes import name_of
from sessions.enums import CallState
from sessions.models import Call

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
    return render_to_string("sessions/calls/_card.html", {"call": call, "may_read": may_read})


def test_a_running_call_has_a_progress_bar_and_can_be_cancelled(call: Call) -> None:
    call.state, call.progress, call.progress_total = CallState.SENT, 3, 4
    shown = html(call)
    assert 'role="progressbar"' in shown
    assert 'value="75"' in shown
    assert "data-cancel-call" in shown


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
    assert "Nothing listens" in lost
    for one, other in ((tool, "JSON-RPC error"), (rpc, "connection failed"), (lost, "tool reported")):
        assert other not in one


def test_a_refused_answer_says_that_the_tool_may_have_run(call: Call) -> None:
    shown = html(over(call, CallState.FAILED, fault="message_limit", detail="9 MiB"))
    assert "Refused: message limit" in shown
    assert "may have run" in shown


def test_an_unknown_outcome_offers_to_run_again_and_says_what_it_means(call: Call) -> None:
    shown = html(over(call, CallState.OUTCOME_UNKNOWN))
    assert "never repeats" in shown
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
    assert f'src="data:image/png;base64,{PNG}"' in html(over(call, CallState.SUCCEEDED, {"content": content}))


def test_media_stay_within_their_budget() -> None:
    big = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 250_000).decode()
    blocks = result_blocks.blocks_of([{"type": "image", "mimeType": "image/png", "data": big}] * 3)
    assert [block.kind for block in blocks] == ["image", "note", "note"]


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


def test_without_the_right_neither_arguments_nor_result_are_shown(call: Call) -> None:
    over(call, CallState.SUCCEEDED, {"content": [{"type": "text", "text": "the-answer"}]})
    assert "the-answer" not in html(call, may_read=False)


def test_an_erased_result_says_so(call: Call) -> None:
    over(call, CallState.SUCCEEDED, {"content": []})
    payloads.erase(call.result)
    assert "was erased" in html(call)


def test_a_call_that_needs_more_permission_says_which_and_leads_to_the_sign_in(call: Call) -> None:
    words = "The server asks you to allow more (write)."
    shown = html(over(call, CallState.FAILED, fault="insufficient_scope", detail=words))
    assert words in shown
    assert f'href="/servers/{call.server.slug}/sign-in/"' in shown
    assert "/sign-in/" not in html(over(call, CallState.FAILED, fault="forbidden", detail="No."))
