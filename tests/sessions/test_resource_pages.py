"""The resource and prompt pages read from the database, take defaults from their address, and call nothing by
themselves."""

import base64
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit import payloads
from servers.audit import writer as writing
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind, PayloadKind
from servers.models import AuditEvent
from sessions.enums import CallState, VersionCause
from sessions.mcp.core.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ
from sessions.models import Call, McpSession, ResourceVersion, Subscription
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription

pytestmark = pytest.mark.django_db(transaction=True)
EVIL = '<img src=x onerror=alert(1)>"\u202e'
PAGE = "/servers/library/resources/"
CALLER = ("view_server", "call_tool")


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def session() -> McpSession:
    made = make_session("library")
    now, server = timezone.now(), made.server
    plain = {"uri": "lib://plain", "name": "plain", "title": "Plain", "mimeType": "text/plain", "size": 2048}
    evil = {
        "uri": f"lib://{EVIL}",
        "name": EVIL,
        "description": EVIL,
        "mimeType": EVIL,
        "annotations": {"audience": [EVIL]},
    }
    store_listing(server, DefinitionKind.RESOURCE, [plain, evil], now)
    store_listing(server, DefinitionKind.RESOURCE_TEMPLATE, [{"uriTemplate": "lib://{name}{?q}", "name": "any"}], now)
    prompt = {"name": "review", "title": EVIL, "arguments": [{"name": "code", "required": True, "description": EVIL}]}
    store_listing(server, DefinitionKind.PROMPT, [prompt], now)
    return made


def signed_in(*permissions: str, name: str = "carla") -> Client:
    client = Client()
    client.force_login(person(name, *(permissions or CALLER)))
    return client


def read_before(session: McpSession, uri: str, text: str, *, user: Any = None, minutes: int = 3, **fields: Any) -> Call:
    call = make_call(session, uri, method=RESOURCES_READ, uri=uri)
    result = payloads.store(PayloadKind.RESULT, json.dumps({"contents": [{"uri": uri, "text": text, **fields}]}))
    ended = timezone.now() - timedelta(minutes=minutes)
    Call.objects.filter(pk=call.pk).update(
        state=CallState.SUCCEEDED, result=result, sent_at=ended, finished_at=ended, user=user
    )
    return Call.objects.get(pk=call.pk)


def html(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def test_opening_any_address_of_the_pages_asks_the_server_for_nothing(session: McpSession) -> None:
    client = signed_in()
    for query in ("", "?uri=lib://plain", "?uri=never-seen", "?template=lib://%7Bname%7D%7B%3Fq%7D&arg.name=a"):
        html(client, PAGE + query)
    html(client, "/servers/library/prompts/?prompt=review&arg.code=x")
    assert not Call.objects.exists()


def test_what_was_read_last_is_shown_with_its_age_and_whoever_read_it(session: McpSession) -> None:
    reader = person("rita", *CALLER, "view_payload")
    read_before(session, "lib://plain", "older text", user=reader, minutes=9)
    newest = read_before(session, "lib://plain", "the text", user=reader)
    client = Client()
    client.force_login(reader)
    shown = html(client, f"{PAGE}?uri=lib://plain")
    assert "the text" in shown
    assert "older text" not in shown
    assert f"#{newest.pk}" in shown
    assert newest.finished_at.isoformat(timespec="milliseconds").replace("+00:00", "Z") in shown


def test_an_agent_that_was_asked_for_input_has_read_nothing(session: McpSession) -> None:
    reader = person("rita", *CALLER, "view_payload")
    read_before(session, "lib://plain", "the text", user=reader, minutes=5)
    asked = read_before(session, "lib://plain", "", user=reader, minutes=1)
    text = json.dumps({"resultType": "input_required", "inputRequests": {}})
    Call.objects.filter(pk=asked.pk).update(result=payloads.store(PayloadKind.RESULT, text))
    client = Client()
    client.force_login(reader)
    assert "the text" in html(client, f"{PAGE}?uri=lib://plain")


def test_what_others_read_is_kept_from_anyone_who_may_not_see_results(session: McpSession) -> None:
    read_before(session, "lib://plain", "not for carla")
    shown = html(signed_in(), f"{PAGE}?uri=lib://plain")
    assert "not for carla" not in shown
    assert "Read by another user" in shown


def test_a_newer_version_of_a_subscription_counts_as_what_was_read_last(session: McpSession) -> None:
    now = timezone.now()
    read_before(session, "lib://plain", "by hand")
    common = {"server": session.server, "identity": session.identity, "uri": "lib://plain"}
    watched = Subscription.objects.create(state_since=now, created_at=now, created_by_name="ada", **common)
    contents = payloads.store(PayloadKind.RESULT, json.dumps([{"uri": "lib://plain", "text": "by the subscription"}]))
    ResourceVersion.objects.create(
        subscription=watched, number=4, at=now, cause=VersionCause.UPDATED, digest="d", size=19, contents=contents
    )
    shown = html(signed_in(*CALLER, "view_payload"), f"{PAGE}?uri=lib://plain")
    assert "by the subscription" in shown
    assert "version 4" in shown


def test_an_older_reading_is_not_above_what_a_subscription_brought_since(session: McpSession) -> None:
    older = read_before(session, "lib://plain", "by hand")
    watched = make_subscription(session, uri="lib://plain")
    add_version(watched, "by the subscription")
    shown = html(signed_in(*CALLER, "view_payload"), f"{PAGE}?uri=lib://plain")
    assert "by the subscription" in shown
    assert "by hand" not in shown
    assert f"call-{older.uid}" not in shown


def test_a_reading_that_failed_is_above_what_is_kept(session: McpSession) -> None:
    read_before(session, "lib://plain", "still good")
    failed = make_call(session, "lib://plain", method=RESOURCES_READ)
    Call.objects.filter(pk=failed.pk).update(state=CallState.FAILED, finished_at=timezone.now(), detail="No way.")
    shown = html(signed_in(*CALLER, "view_payload"), f"{PAGE}?uri=lib://plain")
    assert shown.index(f"call-{failed.uid}") < shown.index("still good")


def test_a_resource_is_listed_by_its_title_else_its_name_else_its_uri_and_says_no_uri_twice(
    session: McpSession,
) -> None:
    long = "lib://shelf/" + "a" * 280 + "/end"
    items = [
        {"uri": "lib://1", "name": "first", "title": "The first"},
        {"uri": "lib://2", "name": "second"},
        {"uri": "lib://3"},
        {"uri": long, "name": ""},
    ]
    store_listing(session.server, DefinitionKind.RESOURCE, items, timezone.now())
    page = html(signed_in(), f"{PAGE}?template=lib://%7Bname%7D%7B%3Fq%7D")
    shown = page[page.index('id="resource-list"') : page.index('class="pane-f"')]
    for name, uri in (("The first", "lib://1"), ("second", "lib://2")):
        assert f'<span class="ell">{name}</span>' in shown
        assert shown.count(f">{uri}</span>") == 1
    assert ">first<" not in shown
    assert shown.count(">lib://3</span>") == 1
    assert f'title="{long}"' in shown
    assert f'<span class="vh">{long}</span>' in shown
    assert re.search(r'<span aria-hidden="true">lib://shelf/a+…a+/end</span>', shown)


def test_a_failed_read_of_a_subscription_makes_its_old_content_no_newer(session: McpSession) -> None:
    read_before(session, "lib://plain", "by a person", user=person("ann"), minutes=3)
    watched = make_subscription(session, uri="lib://plain")
    add_version(watched, "by the subscription", minutes_ago=10)
    Subscription.objects.update(last_read_at=timezone.now(), read_fault="timeout", read_detail="No answer.")
    shown = html(signed_in("view_server", "view_payload"), f"{PAGE}?uri=lib://plain")
    assert "by a person" in shown
    assert "by the subscription" not in shown


def test_no_subscription_is_offered_where_the_server_did_not_declare_them(session: McpSession) -> None:
    client = signed_in(*CALLER, "manage_subscription")
    template = f"{PAGE}?template=lib://%7Bname%7D%7B%3Fq%7D&arg.name=a"
    pages = [f"{PAGE}?uri=lib://plain", template]

    def offered() -> list[bool]:
        made = client.get(f"{PAGE}uri/", {"template": "lib://{name}{?q}", "arg.name": "a"}).json()["subscribe"]
        return ["Subscribe</button>" in text for text in (*(html(client, page) for page in pages), made)]

    McpSession.objects.update(state="ready", revision="2025-11-25", server_capabilities={"resources": {}})
    assert offered() == [False] * 3
    assert "does not offer subscriptions" in html(client, pages[1])
    McpSession.objects.update(server_capabilities={"resources": {"subscribe": True}})
    assert offered() == [True] * 3


def test_hostile_words_of_a_server_are_text_on_both_pages(session: McpSession) -> None:
    client = signed_in(*CALLER, "view_payload")
    read_before(session, "lib://plain", EVIL, mimeType=EVIL)
    evil_uri = "?uri=lib://%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%22%E2%80%AE"
    for path in (f"{PAGE}?uri=lib://plain", PAGE + evil_uri, "/servers/library/prompts/"):
        shown = html(client, path)
        assert "<img src=x" not in shown
        assert 'class="hid"' in shown


def test_the_form_of_a_template_keeps_what_its_address_says_and_makes_the_uri(session: McpSession) -> None:
    shown = html(signed_in(), f"{PAGE}?template=lib://%7Bname%7D%7B%3Fq%7D&arg.name=a b&arg.q=1")
    assert "lib://a%20b?q=1" in shown
    assert ">a b</textarea>" in shown
    html(signed_in(name="other"), f"{PAGE}?template=lib://unknown", 404)


def test_the_uri_is_made_while_someone_types(session: McpSession) -> None:
    client = signed_in("view_server")
    made = client.get(f"{PAGE}uri/", {"template": "lib://{name}{?q}", "arg.name": "ж\u202e"}).json()
    made.pop("subscribe")
    assert made == {"uri": "lib://%D0%B6%E2%80%AE", "shown": "lib://%D0%B6%E2%80%AE", "errors": {}, "problem": ""}
    assert client.get(f"{PAGE}uri/", {"template": "lib://{name}{?q}"}).json()["errors"] == {"name": "Enter a value."}
    assert client.get(f"{PAGE}uri/", {"template": "lib://{else}"}).status_code == 404


def test_without_script_a_form_places_the_call_and_leads_to_it(session: McpSession) -> None:
    client = signed_in()
    answers = [
        client.post(f"{PAGE}read/", {"uri": "lib://plain"}),
        client.post(f"{PAGE}read/", {"template": "lib://{name}{?q}", "arg.name": "a"}),
        client.post("/servers/library/prompts/get/?prompt=review", {"arg.code": "x"}),
    ]
    placed = list(Call.objects.order_by("id"))
    assert [(call.method, call.target) for call in placed] == [
        (RESOURCES_READ, "lib://plain"),
        (RESOURCES_READ, "lib://a"),
        (PROMPTS_GET, "review"),
    ]
    expected = [(303, f"/calls/{call.uid}/") for call in placed]
    assert [(answer.status_code, answer["Location"]) for answer in answers] == expected


def test_without_script_what_is_missing_is_said_and_nothing_is_placed(session: McpSession) -> None:
    client = signed_in()
    back = client.post(f"{PAGE}read/", {"template": "lib://{name}{?q}", "arg.q": "kept"}, follow=True)
    assert b"Fill in the fields" in back.content
    assert b">kept</textarea>" in back.content
    again = client.post("/servers/library/prompts/get/?prompt=review", {"arg.code": ""})
    assert again.status_code == 422
    assert b"Enter a value." in again.content
    assert not Call.objects.exists()


def test_without_permission_to_call_nothing_is_placed_and_nothing_is_completed(session: McpSession) -> None:
    McpSession.objects.update(state="ready", revision="2025-11-25", server_capabilities={"completions": {}})
    viewer, caller = signed_in("view_server", name="vera"), signed_in()
    assert 'data-suggests="ref/prompt:review"' in html(caller, "/servers/library/prompts/")
    assert 'data-suggests=""' in html(viewer, "/servers/library/prompts/")
    page = f"{PAGE}?uri=lib://plain"
    assert ("data-read-form" in html(caller, page), "data-read-form" in html(viewer, page)) == (True, False)
    assert viewer.post(f"{PAGE}read/", {"uri": "lib://plain"}).status_code == 403
    assert AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY).count() == 1


def test_a_server_that_declares_no_completion_is_not_asked_for_any(session: McpSession) -> None:
    McpSession.objects.update(state="ready", revision="2025-11-25", server_capabilities={"prompts": {}})
    assert 'data-suggests=""' in html(signed_in(), "/servers/library/prompts/")


def test_values_of_a_completion_are_bounded_and_belong_to_the_user_who_asked(session: McpSession) -> None:
    carla = signed_in()
    call = make_call(session, "ref/prompt:review", method=COMPLETE)
    values = [f"v{n}" for n in range(150)] + [5, "x" * 2_000, EVIL]
    result = payloads.store(PayloadKind.RESULT, json.dumps({"completion": {"values": [EVIL, *values]}}))
    ended = {"state": CallState.SUCCEEDED, "result": result, "finished_at": timezone.now()}
    owner = carla.session["_auth_user_id"]
    Call.objects.filter(pk=call.pk).update(user=owner, **ended)
    found = carla.get(f"/calls/{call.uid}/values.json").json()
    assert (found["final"], found["more"], len(found["values"])) == (True, True, 100)
    assert found["values"][0]["value"] == EVIL
    assert "\u202e" not in found["values"][0]["shown"]
    assert signed_in(name="other").get(f"/calls/{call.uid}/values.json").status_code == 403


def test_one_content_can_be_downloaded_as_bytes_that_no_browser_opens(session: McpSession) -> None:
    call = read_before(session, "lib://plain", "x")
    blob = base64.b64encode(b"<script>alert(1)</script>").decode()
    result = payloads.store(PayloadKind.RESULT, json.dumps({"contents": [{"uri": "x", "blob": blob}, {"uri": "x"}]}))
    Call.objects.filter(pk=call.pk).update(result=result)
    client = signed_in(*CALLER, "view_payload")
    answer = client.get(f"/calls/{call.uid}/contents/0/")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert [client.get(f"/calls/{call.uid}/contents/{n}/").status_code for n in (1, 2)] == [404, 404]
    assert signed_in(name="other").get(f"/calls/{call.uid}/contents/0/").status_code == 403


def test_a_content_is_revalidated_read_in_pieces_and_gone_once_it_was_erased(session: McpSession) -> None:
    call = read_before(session, "lib://plain", "x")
    film = b"\x1a\x45\xdf\xa3webm" + b"f" * 92
    contents = [{"uri": "x", "mimeType": "video/webm", "blob": base64.b64encode(film).decode()}]
    contents.append({"uri": "x", "mimeType": "image/png", "blob": base64.b64encode(b"<html>").decode()})
    result = payloads.store(PayloadKind.RESULT, json.dumps({"contents": contents}))
    Call.objects.filter(pk=call.pk).update(result=result)
    client, path = signed_in(*CALLER, "view_payload"), f"/calls/{call.uid}/contents/0/"
    whole = client.get(f"{path}?open")
    assert (whole.content, whole["Content-Type"], whole["Cache-Control"]) == (film, "video/webm", "private, no-cache")
    assert whole["Content-Disposition"].startswith("inline")
    assert client.get(f"/calls/{call.uid}/contents/1/?open")["Content-Disposition"].startswith("attachment")
    pieces = {
        "bytes=0-3": (206, film[:4]),
        "bytes=96-": (206, film[96:]),
        "bytes=-2": (206, b"ff"),
        "bytes=200-": (416, b""),
    }
    for asked, expected in pieces.items():
        answer = client.get(path, headers={"Range": asked})
        assert (answer.status_code, answer.content) == expected
    assert client.get(path, headers={"If-None-Match": whole["ETag"]}).status_code == 304
    assert signed_in(name="other").get(path, headers={"If-None-Match": whole["ETag"]}).status_code == 403
    payloads.erase(result)
    assert client.get(path, headers={"If-None-Match": whole["ETag"]}).status_code == 404


def test_binary_parts_of_a_tools_result_are_files_of_their_own_type_and_a_safe_name(session: McpSession) -> None:
    def part(data: bytes, mime: str, uri: str) -> dict[str, Any]:
        return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "blob": base64.b64encode(data).decode()}}

    def media(kind: str, data: bytes, mime: str) -> dict[str, Any]:
        """Its text is nothing that a page shows."""
        return {"type": kind, "mimeType": mime, "data": base64.b64encode(data).decode(), "text": "Chart"}

    png = media("image", b"\x89PNG\r\n\x1a\n", "image/png")
    content = [
        part(b"%PDF-1.7", "application/pdf", "file:///tmp/..%2f..%2fReport 2026.pdf"),
        part(b"alert(1)", "text/javascript", "x://evil.js"),
        part(b"<svg>", "image/svg+xml", 'x://a";b.svg'),
        part(b"PK", "application/zip; x=y", "x://archive.exe"),
        png,
        {"type": "text", "text": "words"},
        part(b"RIFF\0\0\0\0WAVE", "audio/wav", "file:///voice.wav"),
        media("audio", b"RIFF\0\0\0\0WAVE", "audio/wav"),
        part(b"\0\0\0\x20ftypheic", "image/heic", "file:///IMG_1.HEIC"),
        part("hé".encode("utf-16"), "text/plain", "file:///notes.txt"),
        {"type": "resource_link", "uri": "x://1", "name": "n"},
    ]
    call = make_call(session, "make")
    result = payloads.store(PayloadKind.RESULT, json.dumps({"content": content}))
    Call.objects.filter(pk=call.pk).update(state=CallState.SUCCEEDED, result=result, finished_at=timezone.now())
    client = signed_in(*CALLER, "view_payload")
    answers = [client.get(f"/calls/{call.uid}/contents/{number}/") for number in range(12)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [404] * 2
    assert answers[4].content.startswith(b"\x89PNG"), "an image is its data, whatever text is beside it"
    name = f"call-{call.pk}"
    assert [(answer["Content-Type"], answer["Content-Disposition"]) for answer in answers[:10]] == [
        ("application/pdf", 'attachment; filename="Report-2026.pdf"'),
        ("application/octet-stream", 'attachment; filename="evil.bin"'),
        ("application/octet-stream", 'attachment; filename="a-b.bin"'),
        ("application/zip", 'attachment; filename="archive.zip"'),
        ("image/png", f'attachment; filename="{name}-5.png"'),
        ("text/plain", f'attachment; filename="{name}-6.txt"'),
        ("audio/wav", 'attachment; filename="voice.wav"'),
        ("audio/wav", f'attachment; filename="{name}-8.wav"'),
        ("image/heic", 'attachment; filename="IMG_1.HEIC"'),
        ("text/plain", 'attachment; filename="notes.txt"'),
    ]
    for answer in answers[:10]:
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    page = html(client, f"/calls/{call.uid}/")
    assert page.count('aria-label="Download content"') == 9
    assert signed_in(name="other").get(f"/calls/{call.uid}/contents/0/").status_code == 403
    assert signed_in(name="third").get(f"/calls/{call.uid}/structured.json").status_code == 403


@pytest.mark.parametrize("uri", ["lib://plain", "other://a b?c=1&d=2#e", "http://169.254.169.254/latest"])
def test_the_link_in_a_result_leads_to_that_resource_ready_to_be_read_from_the_same_server(
    session: McpSession, uri: str
) -> None:
    call = make_call(session, "make")
    content = [{"type": "resource_link", "uri": uri, "name": "n"}]
    result = payloads.store(PayloadKind.RESULT, json.dumps({"content": content}))
    Call.objects.filter(pk=call.pk).update(state=CallState.SUCCEEDED, result=result, finished_at=timezone.now())
    client = signed_in(*CALLER, "view_payload")
    links = re.findall(r'<a href="([^"]+)">Open resource</a>', html(client, f"/calls/{call.uid}/"))
    assert [link.partition("?")[0] for link in links] == [PAGE]
    shown = html(client, links[0])
    assert f'<input type="hidden" name="uri" value="{escape(uri)}">' in shown
    assert "data-read-form" in shown
    assert Call.objects.count() == 1


def test_the_history_leaves_completions_out_until_they_are_asked_for(session: McpSession) -> None:
    make_call(session, "ref/prompt:review", method=COMPLETE)
    read_before(session, "lib://plain", "x")
    client = signed_in()
    rows = {word: html(client, f"/servers/library/history/?method={word}") for word in ("", "all", COMPLETE)}
    assert [("ref/prompt:review" in rows[word], "lib://plain" in rows[word]) for word in rows] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert "ref/prompt:review" not in html(client, "/")


@pytest.mark.parametrize(
    ("method", "target", "leads_to"),
    [
        (RESOURCES_READ, "lib://plain", "/servers/library/resources/?uri=lib%3A%2F%2Fplain"),
        (PROMPTS_GET, "review", "/servers/library/prompts/?prompt=review"),
        (COMPLETE, "ref/prompt:review", "/servers/library/prompts/?prompt=review"),
        (
            COMPLETE,
            "ref/resource:lib://{name}{?q}",
            "/servers/library/resources/?template=lib%3A%2F%2F%7Bname%7D%7B%3Fq%7D",
        ),
    ],
)
def test_the_page_of_a_call_leads_back_to_what_was_asked_for(
    method: str, target: str, leads_to: str, session: McpSession
) -> None:
    client = signed_in()
    call = make_call(session, target, method=method)
    assert f'href="{leads_to}"' in html(client, f"/calls/{call.uid}/")
    html(client, leads_to)
    assert "again" in html(client, f"/calls/{call.uid}/repeat/")


# --- the form of an earlier call ---------------------------------------------------------------------------------------
def test_editing_a_call_fills_its_form_and_sends_nothing(session: McpSession) -> None:
    client, user = signed_in(), get_user_model().objects.get(username="carla")
    read = read_before(session, "lib://a%20b?q=7", "x", user=user)
    got = make_call(session, "review", method=PROMPTS_GET, code="print()")
    other = make_call(session, "review", method=PROMPTS_GET, code="of another person")
    Call.objects.filter(pk=got.pk).update(user=user)
    before = Call.objects.count()
    answer = client.get(PAGE, {"call": str(read.uid)})
    assert parse_qs(urlsplit(answer["Location"]).query) == {
        "template": ["lib://{name}{?q}"],
        "arg.name": ["a b"],
        "arg.q": ["7"],
    }
    prompts = "/servers/library/prompts/?prompt=review&call="
    page = html(client, f"{prompts}{got.uid}")
    assert ">print()</textarea>" in page
    assert "Nothing was sent." in page
    page = html(client, f"{prompts}{other.uid}")
    assert "of another person" not in page
    assert "You don&#x27;t have permission to read its arguments." in page
    assert Call.objects.count() == before
