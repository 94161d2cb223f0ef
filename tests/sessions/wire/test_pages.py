"""The Protocol tab shows each user the wire of the session that their calls use, and what it says only to those who may
read payloads."""

import json
import subprocess
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from servers.enums import AuditAction, IdentityKind, Recording, SignsInAs, TransportKind
from servers.models import AuditEvent, Identity, Server
from sessions.connections import commands
from sessions.enums import SessionState, WireDirection, WireKind
from sessions.live import feeds
from sessions.live.topics import Topic, TopicKind, parse
from sessions.live.viewers import Viewer, sees_row
from sessions.models import McpSession, WireMessage
from sessions.wire import reading, snippets
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session
from tests.sessions.wire.rows import add_message

pytestmark = pytest.mark.django_db(transaction=True)
SAID = "what-only-readers-may-read"


@pytest.fixture
def server(db: None) -> Server:
    return make_session("wired", signs_in_as=SignsInAs.EITHER).server


@pytest.fixture
def exchanged(server: Server) -> list[WireMessage]:
    """A call over HTTP: the request, the exchange that carried it, its answer with a body."""
    headers = {"sent": [["Authorization", "[redacted]"]], "received": [["content-type", "application/json"]]}
    return [
        add_message(server, target="greet", exchange=1, body={"params": SAID}, call_uid=uuid4()),
        add_message(
            server,
            WireKind.EXCHANGE,
            exchange=1,
            method="POST",
            target="https://h.test/mcp?key=[redacted]",
            rpc_id="",
            status=200,
            body="",
            headers=json.dumps(headers),
        ),
        add_message(
            server, WireKind.ERROR, target="greet", exchange=1, fault="-32000", detail=SAID, body={"error": SAID}
        ),
    ]


def browser(*permissions: str, name: str = "vera") -> Client:
    client = Client()
    client.force_login(person(name, "view_server", *permissions))
    return client


def shown(client: Client, path: str = "", **query: str) -> str:
    answer = client.get(f"/servers/wired/protocol/{path}".replace("protocol/../", ""), query)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def numbers(html: str) -> list[str]:
    return [part.partition('"')[0] for part in html.split('<li data-seq="')[1:] if not part.startswith('"')]


def test_the_list_has_the_messages_and_the_filters_choose_among_them(exchanged: list[WireMessage]) -> None:
    client = browser()
    assert numbers(shown(client, order="time")) == ["1", "3"]
    assert numbers(shown(client, order="time", direction="received")) == ["3"]
    assert numbers(shown(client, text="GREET")) == ["1"]
    assert numbers(shown(client, text="%")) == []
    assert "No matching messages" in shown(client, text="nothing")


def test_a_request_and_its_answer_are_one_row_and_its_call_keeps_what_belongs_to_it(server: Server) -> None:
    uid = uuid4()
    McpSession.objects.filter(server=server).update(state=SessionState.READY)
    add_message(server, call_uid=uid, target="greet", rpc_id="1")
    add_message(
        server,
        WireKind.NOTIFICATION,
        direction=WireDirection.RECEIVED,
        call_uid=uid,
        rpc_id="",
        method="notifications/progress",
    )
    add_message(server, direction=WireDirection.RECEIVED, call_uid=uid, rpc_id="7", method="elicitation/create")
    add_message(
        server, WireKind.RESULT, direction=WireDirection.SENT, call_uid=uid, rpc_id="7", method="elicitation/create"
    )
    add_message(server, rpc_id="2", call_uid=uid, target="greet")
    add_message(server, WireKind.RESULT, rpc_id="2", duration_ms=1500)
    add_message(server, WireKind.ERROR, rpc_id="1", fault="-32000", duration_ms=2500)
    add_message(server, rpc_id="3", method="ping")
    client = browser()
    page = shown(client)
    assert numbers(page) == ["1", "2", "3", "5", "8"], "children follow their call"
    assert page.index("wire-children") < page.index('data-seq="2"')
    assert ("Error -32000" in page, "2.50 s" in page, ">Pending<" in page) == (True, True, True)
    assert numbers(shown(client, outcome="error"))[0] == "1"
    assert numbers(shown(client, outcome="pending")) == ["8"]
    assert numbers(shown(client, outcome="ok")) == []
    assert numbers(shown(client, method="ping")) == ["8"]
    assert "ping (1)" in page
    add_message(server, rpc_id="1", connection=2, method="initialize")
    assert ">No response<" in shown(client), "what an earlier connection did not answer stays so"


def test_the_network_tab_has_requests_with_what_they_carried_and_old_addresses_lead_there(
    exchanged: list[WireMessage], server: Server
) -> None:
    received = {"sent": [], "received": [["content-type", "text/event-stream"]]}
    http = {"method": "GET", "rpc_id": "", "body": "", "target": "https://h.test/mcp"}
    add_message(server, WireKind.EXCHANGE, exchange=2, status=200, headers=json.dumps(received), size=0, **http)
    for _ in range(3):
        add_message(server, WireKind.NOTIFICATION, direction=WireDirection.RECEIVED, exchange=2, rpc_id="")
    add_message(server, exchange=3)
    add_message(server, WireKind.EXCHANGE, exchange=3, status=None, fault="timeout", **http)
    client, address = browser(), "../network/"
    page = shown(client, address)
    assert numbers(page) == ["2", "4", "9"]
    assert 'data-messages="3"' in page
    assert "Attempt 2" in page, "the request with the id 1 was sent before"
    assert numbers(shown(client, address, outcome="failed")) == ["9"]
    assert numbers(shown(client, address, text="key=")) == ["2"]
    add_message(
        server, WireKind.STREAM_END, exchange=2, fault="broken", rpc_id="", method="GET", size=900, duration_ms=5
    )
    assert "Stream lost: broken" in shown(client, address)
    answer = client.get("/servers/wired/protocol/?show=http&text=key")
    assert answer.headers["Location"] == "/servers/wired/network/?text=key"
    Server.objects.update(transport=TransportKind.STDIO)
    WireMessage.objects.all().delete()
    assert "No HTTP on this transport" in shown(client, address)


def test_what_a_message_says_is_for_those_who_may_read_payloads(exchanged: list[WireMessage]) -> None:
    vera, rita = browser(), browser("view_payload", name="rita")
    pages = [shown(vera, path, **query) for path, query in [("", {}), ("", {"order": "time"}), ("1/", {}), ("3/", {})]]
    assert [SAID in page for page in pages] == [False] * 4
    assert "Ask an administrator" in pages[2]
    assert "greet" in pages[2]
    assert SAID in shown(rita, "1/")
    assert shown(rita, "3/").count(SAID) == 4, "the error, its text, what the button copies, and the request above it"
    assert SAID not in shown(rita)


def test_a_message_comes_with_its_pair_its_exchange_and_its_call(exchanged: list[WireMessage]) -> None:
    client = browser("view_payload")
    request, exchange = shown(client, "1/"), shown(client, "2/")
    assert ">Response" in request
    assert "/calls/" in request
    assert "[redacted]" in request
    assert "https://h.test/mcp" in request
    assert 'href="/servers/wired/protocol/1/"' in exchange
    assert 'href="/servers/wired/protocol/3/"' in exchange
    assert ">Request" in shown(client, "3/")
    assert client.get("/servers/wired/protocol/99/").status_code == 404


def test_the_list_fetches_a_message_without_the_page_around_it(exchanged: list[WireMessage]) -> None:
    answer = browser("view_payload").get("/servers/wired/protocol/1/", headers={"HX-Request": "true"})
    assert b"<html" not in answer.content
    assert SAID.encode() in answer.content
    assert "HX-Request" in answer.headers["Vary"]


def test_a_message_is_copied_as_json_curl_and_python_without_secrets(
    exchanged: list[WireMessage], server: Server
) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "it's", "arguments": {"a": "\u202e$(id)", "b": None}},
    }
    WireMessage.objects.filter(seq=1).update(body=json.dumps(body, ensure_ascii=False))
    Server.objects.update(transport=TransportKind.STREAMABLE_HTTP, url="https://h.test/mcp?api_key=abc")
    html = unescape(browser("view_payload").get("/servers/wired/protocol/1/").content.decode())
    assert "-H 'Authorization: '\"${AUTHORIZATION}\"" in html
    assert "'https://h.test/mcp?key='\"${URL_PARAMETER}\"" in html
    assert r"\u202e$(id)" in html
    assert "session.call_tool(\"it's\", {'a': " in html
    assert "'b': None}" in html
    assert 'os.environ["WIRED_API_KEY"]' in html
    Server.objects.update(transport=TransportKind.STDIO, command="/bin/serve", arguments=["--dir", "a b"])
    piped = unescape(browser("view_payload", name="rita").get("/servers/wired/protocol/1/").content.decode())
    assert "; sleep 5) | /bin/serve --dir 'a b'" in piped
    assert '"method":"initialize"' in piped
    assert "data-copy-json" not in shown(browser(name="otto"), "1/"), "what may not be read may not be copied"


def test_the_command_of_an_exchange_has_the_arguments_of_its_call_so_reading_it_is_an_event(
    exchanged: list[WireMessage], server: Server
) -> None:
    Server.objects.update(transport=TransportKind.STREAMABLE_HTTP, url="https://h.test/mcp")
    call = make_call(McpSession.objects.get(), "greet")
    WireMessage.objects.filter(seq=1).update(call_uid=call.uid)
    without = unescape(browser().get("/servers/wired/protocol/2/").content.decode())
    assert SAID not in without
    assert not AuditEvent.objects.filter(action=AuditAction.PAYLOAD_READ).exists()
    page = unescape(browser("view_payload", name="rita").get("/servers/wired/protocol/2/").content.decode())
    assert SAID in page
    event = AuditEvent.objects.get(action=AuditAction.PAYLOAD_READ)
    assert (event.actor_name, event.call_uid, json.loads(event.body)["details"]["kind"]) == (
        "rita",
        call.uid,
        "arguments",
    )


def test_a_variable_that_a_server_names_is_text_in_a_copied_command() -> None:
    headers = reading.Headers(sent=[("Mcp-Session-Id", "${HOME}$(id)`id`"), ("X-Key", "a [redacted] b")], received=[])
    command = snippets.curl("https://h.test/${HOME}", "POST", headers, '{"a": 1}')
    echoed = subprocess.run(
        ["bash", "-c", f"curl() {{ printf '%s\\n' \"$@\"; }}\n{command}"],
        env={"HOME": "/secret", "X_KEY": "mine"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert echoed[2:] == [
        "POST",
        "https://h.test/${HOME}",
        "-H",
        "Mcp-Session-Id: ${HOME}$(id)`id`",
        "-H",
        "X-Key: a mine b",
        "--data-raw",
        '{"a":1}',
    ]


def test_a_known_call_is_replayed_by_its_own_form(server: Server) -> None:
    call = make_call(server.sessions.get())
    add_message(server, call_uid=call.uid, target="greet", rpc_id="1")
    add_message(server, method="tools/list", rpc_id="2")
    add_message(server, call_uid=uuid4(), target="gone", rpc_id="3")
    client = browser("call_tool")
    assert f'action="/calls/{call.uid}/repeat/"' in shown(client, "1/")
    assert f"/servers/wired/tools/?tool=greet&amp;call={call.uid}" in shown(client, "1/")
    assert 'action="/servers/wired/refresh/"' in shown(client, "2/")
    assert "Replay" not in shown(client, "3/")
    assert "Replay" not in shown(browser(name="otto"), "1/")


def test_a_call_leads_to_its_messages_or_says_that_there_are_none(server: Server) -> None:
    call = make_call(server.sessions.get())
    client = browser()
    assert client.get(f"/calls/{call.uid}/messages/", follow=True).redirect_chain[-1][0] == "/servers/wired/protocol/"
    add_message(server, WireKind.NOTIFICATION, call_uid=call.uid)
    sent = add_message(server, call_uid=call.uid, target="greet")
    assert client.get(f"/calls/{call.uid}/messages/").url == f"/servers/wired/protocol/{sent.seq}/"


def test_an_export_has_the_filtered_messages_and_is_an_audit_event(exchanged: list[WireMessage]) -> None:
    address = "/servers/wired/protocol/export/?direction=received"
    assert browser().post(address).status_code == 403
    assert AuditEvent.objects.filter(action=AuditAction.WIRE_EXPORT).count() == 0
    rita = browser("view_payload", name="rita")
    assert rita.get(address).status_code == 405
    assert rita.post(address, {"uid": uuid4()}).status_code == 409
    answer = rita.post(address)
    text = async_to_sync(_whole)(answer).decode()
    assert [json.loads(line)["seq"] for line in text.splitlines()] == [3]
    assert json.loads(text)["message"] == {"error": SAID}
    assert "direction" in AuditEvent.objects.get(action=AuditAction.WIRE_EXPORT).body


async def _whole(answer: Any) -> bytes:
    return b"".join([part async for part in answer.streaming_content])


def test_pairs_are_found_by_side_connection_and_order(server: Server) -> None:
    add_message(server, rpc_id="1", connection=1)
    theirs = add_message(server, rpc_id="1", direction=WireDirection.RECEIVED, method="roots/list")
    reply = add_message(server, WireKind.RESULT, rpc_id="1", direction=WireDirection.SENT)
    answer = add_message(server, WireKind.RESULT, rpc_id="1")
    later = add_message(server, rpc_id="1", connection=2)
    assert reading.details(theirs).pair == reply
    assert reading.details(reply).pair == theirs
    assert reading.details(answer).pair == WireMessage.objects.get(seq=1)
    assert reading.details(later).pair is None


def test_what_was_cut_or_is_no_json_is_shown_as_text_and_hidden_characters_are_marked(server: Server) -> None:
    add_message(server, body='{"a": "<script>alert(1)</script>', cut=True)
    add_message(server, WireKind.INVALID, body="not json \u202e", method="<b>", target="<i>", rpc_id="<u>")
    client = browser("view_payload")
    cut, invalid, page = shown(client, "1/"), shown(client, "2/"), shown(client)
    assert "Only the beginning is kept" in cut
    for html in (cut, invalid, page):
        assert "<script>alert" not in html
        assert "<b></b>" not in html
        assert "<i>" not in html
        assert "<u>" not in html
    assert "\u202e" not in invalid


def test_the_settings_say_that_all_sessions_of_a_server_share_what_is_kept(server: Server, settings: Any) -> None:
    settings.WIRE_MIB = 24
    page = browser("change_server").get("/servers/wired/settings/").content.decode()
    assert "The newest 24 MiB are kept for this server, across all its sessions" in page


def test_an_empty_tab_says_why(server: Server) -> None:
    client = browser("change_server")
    assert "No messages yet" in shown(client)
    Server.objects.update(recording=Recording.OFF)
    page = shown(client)
    assert "Recording is off." in page
    assert "Nothing is recorded" in page
    assert "/servers/wired/settings/#id_recording" in page
    Server.objects.update(recording=Recording.HEADERS)
    assert "Only headers are recorded." in shown(browser(name="otto"))


def test_older_messages_are_paged(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SHOWN", 2)
    for _ in range(5):
        add_message(server)
    client = browser()
    newest = shown(client)
    assert numbers(newest) == ["4", "5"]
    assert "before=4" in newest
    older = shown(client, before="4")
    assert numbers(older) == ["2", "3"]
    assert "Latest messages" in older


def test_one_message_and_fifty_need_as_many_queries(server: Server) -> None:
    client, counts = browser(), []
    for more in (1, 49):
        for number in range(more):
            add_message(server, call_uid=uuid4(), rpc_id=str(number), exchange=number)
            add_message(server, WireKind.RESULT, rpc_id=str(number))
            add_message(server, WireKind.EXCHANGE, exchange=number, rpc_id="")
        with CaptureQueriesContext(connection) as queries:
            shown(client)
            shown(client, "../network/")
        counts.append(len(queries))
    assert counts[0] == counts[1]


# --- whose --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def ada(server: Server) -> Any:
    user = person("ada", "view_server")
    own = Identity.objects.create(server=server, user=user, kind=IdentityKind.PERSONAL, name="ada")
    commands.session_of(own, server)
    add_message(server, target="shared", body={"x": SAID})
    add_message(server, identity=own, target="own", body={"x": SAID})
    return user


def test_each_sees_the_wire_of_their_own_session(ada: Any) -> None:
    own, other = Client(), browser()
    own.force_login(ada)
    assert (">own<" in shown(own), ">shared<" in shown(own)) == (True, False)
    assert (">own<" in shown(other), ">shared<" in shown(other)) == (False, True)
    assert SAID in shown(own, "1/"), "what a person's own session says is theirs"


def test_live_updates_follow_the_same_rule_and_carry_no_content(ada: Any, server: Server) -> None:
    identity = Identity.objects.get(user=ada)
    mine = parse(f"wire.{server.uid}.{identity.uid}")
    assert mine == Topic(TopicKind.WIRE, server.uid, identity.uid)
    vera = person("vera", "view_server", "view_payload")
    assert (sees_row(Viewer(ada, ""), mine), sees_row(Viewer(vera, ""), mine)) == (True, False)
    part = feeds.feed_after(mine, 0)
    assert [row["target"] for row in part.rows] == ["own"]
    assert SAID not in part.text
    assert [row["target"] for row in feeds.feed_after(Topic(TopicKind.WIRE, server.uid), 0).rows] == ["shared"]


def test_a_search_over_all_servers_gives_each_what_they_may_know_of(ada: Any) -> None:
    vera, rita = person("vera", "view_server"), person("rita", "view_server", "view_payload")

    def found(user: Any) -> set[str]:
        return set(reading.messages(user).values_list("target", flat=True))

    assert (found(ada), found(vera), found(rita)) == ({"shared", "own"}, {"shared"}, {"shared", "own"})
    assert found(person("stan")) == set()
    own = WireMessage.objects.select_related("identity").get(target="own")
    assert [reading.may_read(user, own) for user in (ada, vera, rita)] == [True, False, True]
