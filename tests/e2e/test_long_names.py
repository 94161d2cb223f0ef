"""No page is wider than its window, however long the names and URIs of a server are."""

import json

import pytest
from playwright.sync_api import Browser, Page

from tests.screenshots.judge import overflow
from tests.screenshots.pages import CALLBACK, SHOTS, SIZES
from tests.screenshots.shot import Shot, Stage, World
from tests.tools.browser import sign_in, watched_context
from tests.tools.stack import ADMIN, Stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]

#: names of 128 characters and URIs of 300 without a break opportunity, wherever a server can put them
LONG = """
from datetime import timedelta
from uuid import UUID
from django.contrib.auth.models import User
from django.utils import timezone
from servers.agents import policy_changes
from servers.agents.policies import Rule
from servers.audit import payloads
from servers.audit.record import SYSTEM, Actor
from servers.bundles import changing as bundles
from servers.credentials import vault
from servers.definitions.versions import store_listing
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind, PayloadKind, PolicyEffect, PolicyKind
from servers.models import AuditEvent, OAuthClient, Server
from servers.secret import Secret
from sessions.agents.policy.policy_check import PolicyCheck
from sessions.approvals import deciding
from sessions.connections.commands import shared_session
from sessions.enums import CallState
from sessions.models import Approval, Call, LogLine, McpSession
from tests.sessions.agents.placed import place, principal_of
from tests.sessions.host.make import make_call
from tests.sessions.inbox.rows import a_question, answered
from tests.sessions.subscriptions.rows import add_gap, add_version, make_subscription
import json

name, uri, now = "n" * 128, "long://" + "u" * 293, timezone.now()
server = Server.objects.get()
Server.objects.update(name="N" * 120, tags=["t" * 60])
session = shared_session(server)
McpSession.objects.update(
    state="disconnected", revision="2025-11-25", server_info={{"name": name, "version": name}},
    fault="closed", fault_detail=name + uri, fault_at=now, stderr_tail=uri,
    server_capabilities={{"resources": {{"subscribe": True}}, "tools": {{}}, "prompts": {{}}}}, instructions=uri,
)
schema = {{"type": "object", "properties": {{name: {{"type": "string", "title": name, "description": uri}}}}}}
store_listing(server, "tool", [{{"name": name, "title": name, "description": uri, "inputSchema": schema}}], now)
named = {{"name": name, "description": uri, "mimeType": name}}
store_listing(server, "resource", [{{"uri": uri, **named}}, {{"uri": uri + "2", "name": ""}}], now)
store_listing(server, "resource_template", [{{"uriTemplate": uri + "{{x}}", **named}}], now)
store_listing(server, "prompt", [{{"name": name, "title": name, "arguments": [{{"name": name, "description": uri}}]}}], now)
content = {{"uri": uri, "mimeType": name, "text": uri}}
shown = [{{"type": "text", "text": uri}}, {{"type": "resource_link", "uri": uri, "name": name, "description": uri}},
         {{"type": "resource", "resource": {{"uri": uri, "mimeType": name, "blob": "AAAA"}}}}]


def over(target, method, result, state=CallState.SUCCEEDED, **fields):
    call = make_call(session, target, method=method)
    kept = payloads.store(PayloadKind.RESULT, json.dumps(result))
    done = {{"state": state, "sent_at": now, "finished_at": now, "result": kept, "user_name": "u" * 128, "server_name": "N" * 120}}
    Call.objects.filter(pk=call.pk).update(**(done | fields))
    return Call.objects.get(pk=call.pk)


failed = over(name, "tools/call", {{"content": shown}}, CallState.TOOL_ERROR)
good = over(name, "tools/call", {{"content": shown, "structuredContent": {{name: uri}}}})
over(uri, "resources/read", {{"contents": [content, {{"uri": uri + "2", "blob": "AAAA"}}]}})
over(name, "prompts/get", {{"messages": [{{"role": name, "content": shown[0]}}]}})
running = make_call(session, uri, method="resources/read", lapses_in=900)
LogLine.objects.create(server=server, seq=1, at=now, source="server", logger=name, text=uri)
watched = make_subscription(session, uri, title="T" * 290, created_by_name=name)
add_version(watched, uri, minutes_ago=20)
add_version(watched, uri + uri, {{"uri": uri, "blob": "AAAA", "mimeType": name}})
refused = make_subscription(session, uri + "3", state="refused", reason=uri)
add_version(refused, json.dumps({{name: uri}}))
add_version(refused, json.dumps({{name: name}}))
add_gap(refused, began=5)
kept = {{"call": running, "owner_name": name, "expires_at": now + timedelta(hours=2), "worker_uid": UUID(int=1), "epoch": 1}}
asks = {{"message": uri, "requestedSchema": {{"type": "object", "properties": {{name: {{"type": "string", "title": name}}}}}}}}
model = {{"messages": [{{"role": "user", "content": {{"type": "text", "text": uri}}}}], "maxTokens": 5, "systemPrompt": uri}}
questions = {{
    "form": a_question(asks, **kept), "secret": a_question(asks, **kept),
    "visit": a_question({{"message": uri, "url": "https://" + "h" * 60 + ".example/" + "p" * 300}}, "url", **kept),
    "trap": a_question({{"message": uri, "url": "https://good.example@evil.example/" + "p" * 300}}, "url", **kept),
    "model": a_question(model, "sampling", **kept),
    "over": answered(a_question(asks, **kept, delivered_at=now), {{name: uri}}, name[:100]),
}}
ada = User.objects.get(username={admin!r})
token = Parts(CredentialKind.BEARER, dict(), dict(token=Secret("token-of-a-picture")))
credential = vault.create(SYSTEM, ada, "c" * 120, token, "https://" + "h" * 60 + ".example/" + "p" * 300)
joined = [bundles.Membership(server, "work")]
bundles.create(SYSTEM, ada, bundles.Wanted("B" * 120, joined, slug="team-tools", instructions=uri))
OAuthClient.objects.create(kind="registered", client_id="pictured", name="p" * 120, redirect_uris=[{callback!r}])
OAuthClient.objects.create(
    kind="document", client_id="https://program.invalid/" + "c" * 300, document="failed", document_problem=uri)
actor, program = Actor.of_user(ada), principal_of(ada, name="k" * 120)
policy_changes.add_rule(actor, ada, server, Rule(PolicyEffect.ASK, PolicyKind.TOOL, name))
policy_changes.add_rule(actor, ada, program.token, Rule(PolicyEffect.DENY, PolicyKind.RESOURCE, uri[:290] + "*"))
Server.objects.update(enabled=True)  # for as long as a call is placed
held = [place(PolicyCheck(), program, server.slug, name, "p" * 120, **{{name: uri + text}}) for text in ("", "2")]
Server.objects.update(enabled=False)
waits, no = [Approval.objects.select_related("call__server", "call__arguments", "token").get(call=one) for one in held]
deciding.refuse(actor, ada, no, "r" * 500)
found = {{
    "approval": str(waits.uid), "own_approval": str(waits.uid), "refused_call": str(no.uid), "token": str(program.token.uid),
    "person": User.objects.create_user("w" * 40).pk,
    "server": server.slug, "websocket": server.slug, "archived": server.slug, "failing": server.slug,
    "labelled": server.slug, "paused": server.slug, "succeeded": str(good.uid), "failed": str(failed.uid),
    "audit": AuditEvent.objects.latest("seq").seq, "watched": str(watched.uid), "refused": str(refused.uid),
    "credential": str(credential.uid), "questions": {{word: str(one.uid) for word, one in questions.items()}},
}}
print("WORLD", json.dumps(found))
"""
#: in addition to the pages of the screenshots
MORE = {
    "resource": lambda world: f"/servers/{world.server}/resources/?uri=long://{'u' * 293}",
    "template": lambda world: (
        f"/servers/{world.server}/resources/?template=long://{'u' * 293}%7Bx%7D&arg.x={'v' * 300}"
    ),
    "unlisted": lambda world: f"/servers/{world.server}/resources/?uri=other://{'u' * 293}",
    "versions": lambda world: f"/servers/{world.server}/definitions/tool/?key={'n' * 128}",
    "tool": lambda world: f"/servers/{world.server}/tools/?tool={'n' * 128}",
    "prompt": lambda world: f"/servers/{world.server}/prompts/?prompt={'n' * 128}",
    "repeat": lambda world: f"/calls/{world.succeeded}/repeat/",
}
#: pages that exist only in the world of the screenshots
ELSEWHERE = (
    *("calendar", "acme-changed", "no-such-server", "tool=", "definitions/tool"),
    *("protocol/3/", "sinks//", "schedules//"),
)


def pages(world: World) -> list[Shot]:
    """Pages that open without interaction."""
    plain = [shot for shot in SHOTS if shot.stage is Stage.FILLED and shot.prepare is None and not shot.allow]
    here = [shot for shot in plain if not any(words in shot.path(world) for words in ELSEWHERE)]
    return here + [Shot(name, path) for name, path in MORE.items()]


def too_wide(page: Page, world: World) -> list[str]:
    found = []
    for shot in pages(world):
        path = shot.path(world)
        answer = page.goto(path)
        assert answer is not None
        found += [f"{shot.name} ({path[:60]}): {problem}" for problem in overflow(page)]
        found += [f"{shot.name} ({path[:60]}): {answer.status}"] if answer.status != 200 else []
    return found


@pytest.fixture(scope="module")
def world(own_stack: Stack) -> World:
    common = ("register_server", "--user", ADMIN[0], "--disabled", "--name", "Long")
    own_stack.manage(*common, "--url", "https://" + "h" * 60 + ".example/" + "p" * 300)
    printed = own_stack.shell(LONG.format(admin=ADMIN[0], callback=CALLBACK))
    return World(**json.loads(printed.split("WORLD ", 1)[1]))


@pytest.mark.parametrize("size", ["phone", pytest.param("desktop", marks=pytest.mark.long)])
def test_no_page_is_wider_than_its_window_with_the_longest_names_and_uris(
    size: str, world: World, own_stack: Stack, browser: Browser
) -> None:
    with watched_context(browser, own_stack.base_url) as (context, _):
        page = context.new_page()
        sign_in(page)
        width, height = SIZES[size]
        page.set_viewport_size({"width": width, "height": height})
        found = too_wide(page, world)
    assert found == [], "\n".join(found)
