"""Every page of the product, by the names of the URLconf, in a product whose names and URIs are as long as they may be."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.urls import resolve

from tests.screenshots import world as pictured
from tests.screenshots.pages import CALLBACK, SHOTS
from tests.screenshots.shot import Shot, Stage, World, at, on_server
from tests.tools.stack import ADMIN, Stack

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
bundles.create(SYSTEM, ada, bundles.BundleInput("B" * 120, joined, slug="team-tools", instructions=uri))
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
#: what else there is a page of: messages on the wire, an import and a test that wait, a client, a rule, a kept result
MORE_ROWS = """
import json
from django.contrib.auth.models import User
from servers.agents import policy_changes
from servers.agents.policies import Rule
from servers.audit.record import Actor
from servers.enums import PolicyEffect, PolicyKind
from servers.models import AccountLink, AgentRule, Bundle, Credential, Identity, OAuthClient, RedactionRule, ReferenceGrant, Server
from servers.registration.importing import stored_preview
from sessions.enums import WireKind
from sessions.models import Call, SavedCall, SavedView
from tests.servers.cast import create_draft, over_stdio
from tests.sessions.wire.rows import add_message
ada, server = User.objects.get(username={admin!r}), Server.objects.get(slug={slug!r})
name, uri = "n" * 128, "long://" + "u" * 293
call = Call.objects.get(uid={call!r})
for kind in (WireKind.REQUEST, WireKind.RESULT, WireKind.REQUEST):
    add_message(server, kind, method=name, body={{name: uri}}, call_uid=call.uid)
saved = SavedCall.objects.create(
    server=server, owner=ada, name="s" * 80, shared=True, method=call.method, target=call.target, arguments=call.arguments)
policy_changes.add_rule(
    Actor.of_user(ada), ada, Bundle.objects.get(), Rule(PolicyEffect.DENY, PolicyKind.RESOURCE, uri[:290] + "*"))
rules = {{name: str(AgentRule.objects.filter(**{{f"policy__{{name}}__isnull": False}}).first().uid) for name in ("server", "bundle", "token")}}
grant = ReferenceGrant.objects.create(name="R" * 128, user_id={person}, created_by=ada)
command = over_stdio(command="/opt/" + "c" * 300)
servers = {{"N" * 100: {{"command": "/opt/" + "c" * 300, "args": [uri]}}, "old": {{"type": "gopher", "url": uri}}}}
print("MORE", json.dumps(dict(
    draft=str(stored_preview.hold(ada, json.dumps({{"mcpServers": servers}})).uid),
    test=str(create_draft(Actor.of_user(ada), ada, command).uid),
    client=str(OAuthClient.objects.first().uid), rule=str(RedactionRule.objects.first().uid), saved=str(saved.uid), digest=call.result.digest,
    identity=str(Identity.objects.get(user_id={person}).uid), own_credential=str(Credential.objects.get(owner=ada).uid),
    rules=rules, grant=str(grant.uid), invited=str(AccountLink.objects.filter(purpose="invitation", used_at=None).first().uid),
    view=str(SavedView.objects.create(owner=ada, name="v" * 80, query=uri, shared=True).uid),
)))
"""


@dataclass
class Every(World):
    """What the pages without a screenshot need."""

    draft: str = ""  # uids of an import and of a test of a connection
    test: str = ""
    client: str = ""  # uids of a program that signed in for agents, and of a redaction rule
    rule: str = ""
    saved: str = ""  # of a saved call
    digest: str = ""  # of a stored result
    identity: str = ""  # uids of that of the person, of the administrator's own credential, and of a shared view
    own_credential: str = ""
    view: str = ""
    rules: dict[str, str] = field(default_factory=dict)  # uids of one of each policy: server, bundle, token
    grant: str = ""  # uids of a grant of a reference, and of an invitation
    invited: str = ""


def _of_tool(world: World) -> str:
    return f"/servers/{world.server}/tools/?tool={'n' * 128}"


#: pages without a screenshot, and those of screenshots with the long names in their address
MORE: dict[str, Callable[[Any], str]] = {
    "resource": lambda world: f"/servers/{world.server}/resources/?uri=long://{'u' * 293}",
    "template": lambda world: (
        f"/servers/{world.server}/resources/?template=long://{'u' * 293}%7Bx%7D&arg.x={'v' * 300}"
    ),
    "unlisted": lambda world: f"/servers/{world.server}/resources/?uri=other://{'u' * 293}",
    "versions": lambda world: f"/servers/{world.server}/definitions/tool/?key={'n' * 128}",
    "tool": _of_tool,
    "prompt": lambda world: f"/servers/{world.server}/prompts/?prompt={'n' * 128}",
    "repeat": lambda world: f"/calls/{world.succeeded}/repeat/",
    "import-of-long-names": lambda world: f"/servers/import/{world.draft}/",
    "test-of-a-connection": lambda world: f"/servers/test/{world.test}/",
    "tasks": on_server("tasks/"),
    "legacy": on_server("legacy/"),
    "redaction-rule": lambda world: f"/privacy/rules/{world.rule}/",
    "redaction-rule-delete": lambda world: f"/privacy/rules/{world.rule}/delete/",
    "user-identity-remove": lambda world: f"/users/{world.person}/identities/{world.identity}/remove/",
    "identity-remove": lambda world: f"/servers/calendar/identity/credential/{world.own_credential}/remove/",
    "explorer-view-delete": lambda world: f"/explorer/views/{world.view}/delete/",
    "group-add": at("/users/groups/add/"),
    "browser-reports": at("/browser-reports/list/"),
    "bundle-add": at("/agents/bundles/add/"),
    "token-revoke": lambda world: f"/agents/tokens/{world.token}/revoke/",
    "oauth-client-block": lambda world: f"/oauth/clients/{world.client}/block/",
    "oauth-client-delete": lambda world: f"/oauth/clients/{world.client}/delete/",
    "server-rule-remove": lambda world: f"/servers/{world.server}/agents/rules/{world.rules['server']}/remove/",
    "bundle-rule-remove": lambda world: f"/agents/bundles/team-tools/policy/rules/{world.rules['bundle']}/remove/",
    "token-rule-remove": lambda world: f"/agents/rules/{world.rules['token']}/remove/",
    "grant-remove": lambda world: f"/credentials/references/{world.grant}/revoke/",
    "invitation-revoke": lambda world: f"/users/invitations/{world.invited}/revoke/",
    "saved-call": lambda world: f"/saved-calls/{world.saved}/change/",
    "saved-call-delete": lambda world: f"/saved-calls/{world.saved}/delete/",
    "answer": lambda world: f"/inbox/{world.questions['form']}/answer/",
    "erase": lambda world: f"/payloads/{world.digest}/erase/",
    "bundle-tool": lambda world: f"/agents/bundles/team-tools/members/work/tool/?tool={'n' * 128}",
}
#: rows of the screenshots whose product has what this one does not
ELSEWHERE = ("no-such-server", "?tool=", "?key=", "?uri=demo", "?template=demo", "?prompt=summarise", "?prompt=explain")
#: routes that answer a GET with something else than a page of their own
NOT_PAGES = {
    "setup": "before the first administrator: tests/e2e/test_first_light.py",
    "sign_in_callback": "ends a sign-in at an authorization server: tests/e2e/test_own_identity.py",
    "healthz": "for probes",
    "readyz": "for probes",
    "audit:list": "leads to the explorer",
    "audit:verifier": "a file",
    "audit:public_key": "a file",
    "exports:download": "a file",
    "inbox:request": "a file",
    "inbox:approval_arguments": "a file",
    "protected_resource": "for programs",
    "authorization_server": "for programs",
    "oauth_client": "for programs",
    "palette": "a part of every page",
    "servers:tool_form": "a part of the page of a tool",
    "servers:expand": "a part of the page of a template",
    "servers:icon": "a file",
    "servers:own_sign_in": "leads to the sign-in",
    "servers:sign_in_progress": "belongs to a sign-in under way: tests/e2e/test_own_identity.py",
    "servers:sign_in_go": "leads to the authorization server",
    "servers:detail": "leads to the first tab",
    "server_states": "a part of the list of servers",
    "calls:card": "a part of the pages with calls",
    "calls:messages": "leads to the message",
    "calls:result": "a file",
    "calls:arguments": "a file",
    "calls:values": "for suggestions",
    "calls:part": "a part of a result",
    "calls:structured": "a file",
    "calls:content": "a file",
    "calls:table": "a part of a result",
    "calls:table_csv": "a file",
    "saved_calls:run": "leads to the call",
    "explorer:rows": "a part of the explorer",
    "explorer:row": "a part of the explorer",
    "explorer:newer": "a part of the explorer",
    "explorer:histogram": "a part of the explorer",
    "explorer:facets": "a part of the explorer",
    "explorer:complete": "a part of the explorer",
    "subscriptions:content": "a file",
}


def route_of(path: str) -> str:
    return str(resolve(path.partition("?")[0]).view_name)


def pages(world: World) -> list[Shot]:
    """Pages that open without interaction."""
    rows = [shot for shot in SHOTS if shot.stage is not Stage.FRESH and (shot.prepare or not shot.allow)]
    here = [shot for shot in rows if not any(words in shot.path(world) for words in ELSEWHERE)]
    here += [Shot(name, path) for name, path in MORE.items()]
    return list({(shot.path(world), shot.signed_in): shot for shot in reversed(here)}.values())[::-1]


def fill(stack: Stack) -> Every:
    """Give a product without servers a row for every page."""
    common = ("register_server", "--user", ADMIN[0], "--disabled", "--name", "Long")
    stack.manage(*common, "--url", "https://" + "h" * 60 + ".example/" + "p" * 300)
    found = _said(stack, LONG.format(admin=ADMIN[0], callback=CALLBACK), "WORLD")
    known = {"admin": ADMIN[0], "slug": found["server"]}
    stack.shell(pictured.JOBS)
    stack.shell(pictured.PACKAGES)
    stack.shell(pictured.KEEPING)
    found["sink"], found["schedule"] = stack.shell(pictured.EXPORTS.format(admin=ADMIN[0])).split()[-2:]
    stack.shell(pictured.CREDENTIALS.format(**known))
    person, invitation, link = stack.shell(pictured.PEOPLE.format(password=ADMIN[1], **known)).split()[-3:]
    found |= {"person": int(person), "invitation": invitation, "password_link": link}
    found |= _said(stack, MORE_ROWS.format(call=found["succeeded"], person=person, **known), "MORE")
    return Every(**found)


def _said(stack: Stack, code: str, word: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(stack.shell(code).split(f"{word} ", 1)[1])
    return said
