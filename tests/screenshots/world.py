"""Takes a new product to one with servers and calls, through its own pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from playwright.sync_api import Browser, Page, expect

from tests.screenshots import subscriptions
from tests.screenshots.asked import SEED, seeded
from tests.screenshots.asking import SEED as ASKING
from tests.screenshots.shot import World
from tests.tools.browser import sign_in, watched_context
from tests.tools.stack import ADMIN, Stack

READY_MS = 40_000
CALLS = (
    ("greet", {"name": "Ada"}),
    ("fail_on_purpose", {}),
    ("draw", {}),
    ("search_notes", {}),
    ("add", {"a": "2", "b": "3"}),
)

#: the demo server once offered a different `add`, and a tool that it no longer offers
CHANGED_TOOLS = """
import json
from django.utils import timezone
from servers.definitions.versions import definitions, store_listing
from servers.models import Server
server = Server.objects.get(slug="{slug}")
now = [json.loads(row.body) for row in definitions(server, "tool")]
before = json.loads(json.dumps(now))
add = next(tool for tool in before if tool["name"] == "add")
add["description"] = "Adds numbers."
add["inputSchema"]["properties"]["c"] = dict(type="number")
add["inputSchema"]["required"] = ["a"]
before.append(dict(name="subtract", description="Takes away.", inputSchema=dict(type="object")))
for listing in (before, now):
    store_listing(server, "tool", listing, timezone.now())
"""


#: one credential in use, one unused
CREDENTIALS = """
from django.contrib.auth.models import Group, User
from servers.audit.record import SYSTEM, Actor
from servers.credentials import issuers, reference_grants, vault
from servers.credentials.kinds import Parts
from servers.enums import CredentialKind
from servers.models import ReferenceGrant, Server
from servers.secret import Secret
ada = User.objects.get(username="{admin}")
server = Server.objects.get(slug="{slug}")
token = Parts(CredentialKind.BEARER, dict(), dict(token=Secret("token-of-a-picture")))
used = vault.create(SYSTEM, ada, "Sockets token", token, server.url)
vault.attach(SYSTEM, ada, server, used)
value = Parts(CredentialKind.ENVIRONMENT, dict(variable="API_TOKEN"), dict(value=Secret("value-of-a-picture")))
vault.create(SYSTEM, ada, "Token of the night shift", value)
issuers.expect(SYSTEM, ada, server, "https://login.example.com/tenant/", "https://login.example.com/tenant")
own = Server.objects.create(slug="calendar", name="Calendar", transport="streamable_http", enabled=False,
    url="https://calendar.example.com/mcp", signs_in_as="either")
own.identities.create()
token = Parts(CredentialKind.BEARER, dict(), dict(token=Secret("own-token-of-a-picture")))
vault.create_own(Actor.of_user(ada), ada, own, token)
nora, group = User.objects.create_user("nora"), Group.objects.create(name="Integrations")
for name, to in (("MCP_ORDERS_TOKEN", group), ("file:/run/secrets/orders", nora), ("MCP_ORDERS_TOKEN", nora)):
    reference_grants.grant(Actor.of_user(ada), ada, name, to)
ReferenceGrant.objects.create(name="MCP_LEGACY_KEY", server=server)
own.values.create(kind="header", name="X-Reports", plain="${{MCP_REPORTS_TOKEN}}")
Server.objects.filter(pk=own.pk).update(references_by=nora)
print(used.uid)
"""


#: tokens in each state, and an agent that is connected
AGENTS = """
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from servers.accounts import service_accounts
from servers.agents import tokens
from servers.agents.tokens import NewToken
from servers.audit.record import Actor
from servers.bundles import changing as bundles
from servers.models import AgentToken, OAuthClient, Server
from sessions.models import AgentCall, AgentSession, Call
ada, now = User.objects.get(username="{admin}"), timezone.now()
actor, server = Actor.of_user(ada), Server.objects.get(slug="{slug}")
issue = lambda name, *more: tokens.issue(actor, ada, NewToken(name, 90, ["mcp:list", "mcp:read", "mcp:call"], *more)).token
cursor = issue("Cursor on the desk", [server], ["search_*", "add"], ["10.20.0.0/16"])
AgentToken.objects.filter(pk=cursor.pk).update(
    last_used_at=now - timedelta(minutes=3), last_address="10.20.4.17", last_program="Cursor 3.1.0")
session = AgentSession.objects.create(key="k" * 43, token=cursor, server=server, revision="2025-11-25",
    program="Cursor 3.1.0", created_at=now - timedelta(hours=2), last_seen_at=now - timedelta(minutes=3),
    streams_until=now + timedelta(hours=1))
for call in Call.objects.filter(server=server).order_by("pk")[:12]:
    AgentCall.objects.create(call=call, token=cursor, token_name=cursor.name, session=session, request_id=str(call.pk))
tokens.revoke(actor, ada, issue("Lost laptop"))
expired = issue("Nightly pipeline")
AgentToken.objects.filter(pk=expired.pk).update(expires_at=now - timedelta(days=2))
client = lambda kind, key, name, uri, **more: OAuthClient.objects.create(
    kind=kind, client_id=key, name=name, redirect_uris=[uri], **more)
client("registered", "pictured", "Cursor", "http://127.0.0.1:33418/callback")
client("document", "https://program.invalid/client.json", "", "", document="failed", document_at=now,
    document_problem="The name program.invalid was not found.")
client("added", "blocked", "Old script", "https://old.example/callback", added_by="{admin}", blocked_at=now)
bundles.create(actor, ada, bundles.BundleInput("Team tools", [bundles.Membership(server, "work")]))
service_accounts.add(actor, ada, service_accounts.NewServiceAccount(
    "nightly", "The nightly report. Ask {admin}.", permissions=("view_server", "call_tool")))
"""


#: a person who owns servers and is signed in in two browsers, a disabled one, and invitations in each state
PEOPLE = """
from datetime import timedelta
from django.contrib.auth.models import Group, User
from django.utils import timezone
from allauth.usersessions.models import UserSession
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from servers.accounts import catalog, links
from servers.accounts.links import Invitation
from servers.audit.record import Actor
from servers.models import AccountLink, Identity, Server
ada, now = User.objects.get(username="{admin}"), timezone.now()
actor = Actor.of_user(ada)
callers = Group.objects.get(name="Callers")
olga = User.objects.create_user("olga", "olga@example.com", "{password}", first_name="Olga", last_name="Petrova")
olga.groups.add(callers)
olga.user_permissions.set(catalog.permission_rows(["view_payload", "verify_chain"]))
User.objects.filter(pk=olga.pk).update(last_login=now - timedelta(hours=3))
User.objects.create_user("pete", "pete@example.com", is_active=False, first_name="Pete").groups.add(callers)
Server.objects.filter(slug__in=["{slug}", "calendar"]).update(owner=olga)
Identity.objects.create(server=Server.objects.get(slug="calendar"), kind="personal", name="olga", user=olga)
for agent, ip in (("Windows NT 10.0) Firefox/140.0", "203.0.113.7"), ("Linux; Android 16) Chrome/142 Safari/537", "2001:db8::17")):
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(olga.pk), olga.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "mcpadmin.accounts.Backend"
    session.create()
    UserSession.objects.create(user=olga, session_key=session.session_key, ip=ip, user_agent="Mozilla/5.0 (" + agent)
open_one = links.invite(actor, ada, Invitation("Nina Novak", "nina@example.com", False, [callers], ("view_payload",)))
expired = links.invite(actor, ada, Invitation("", "max@example.com", True))
AccountLink.objects.filter(pk=expired.link.pk).update(expires_at=now - timedelta(days=1))
links.revoke(actor, ada, links.invite(actor, ada, Invitation("Revoked Rita")).link)
print(olga.pk, open_one.url(""), links.issue_password_link(actor, ada, olga).url(""))
"""


@contextmanager
def signed_in_page(browser: Browser, stack: Stack) -> Iterator[Page]:
    with watched_context(browser, stack.base_url) as (context, _):
        page = context.new_page()
        sign_in(page)
        yield page


def fill(browser: Browser, stack: Stack, world: World) -> None:
    """Add the demo server, run some of its tools, and store the ids of the rows in `world`."""
    with signed_in_page(browser, stack) as page:
        page.goto("/servers/")
        page.get_by_role("button", name="demo server").click()
        page.wait_for_url("**/servers/*/**")
        world.server = str(stack.rows("SELECT slug FROM servers_server")[0]["slug"])
        page.goto(f"/servers/{world.server}/tools/")
        expect(page.locator(".title .tag").first).to_contain_text("Ready", timeout=READY_MS)
        for tool, arguments in CALLS:
            run_tool(page, world.server, tool, arguments)
        register_others(page, stack, world)
        subscriptions.subscribe(page, world.server)
        world.watched, world.refused = subscriptions.with_a_past(stack, world.websocket)
        register_troubled(page, stack, world)
    stack.shell(CHANGED_TOOLS.format(slug=world.server))
    stack.shell(JOBS)
    stack.shell(PACKAGES)
    stack.shell(KEEPING)
    exports = stack.shell(EXPORTS.format(admin=ADMIN[0])).split()[-2:]
    world.sink, world.schedule = exports
    note_rows(stack, world)
    world.credential = stack.shell(CREDENTIALS.format(admin=ADMIN[0], slug=world.websocket)).split()[-1]
    stack.shell(AGENTS.format(admin=ADMIN[0], slug=world.server))
    asking = stack.shell(ASKING % {"admin": ADMIN[0], "slug": world.server}).split("ASKING ", 1)[1].split()
    world.approval, world.own_approval, world.refused_call, world.token = asking[:4]
    people = stack.shell(PEOPLE.format(admin=ADMIN[0], password=ADMIN[1], slug=world.server)).split()[-3:]
    world.person, world.invitation, world.password_link = int(people[0]), people[1], people[2]


def register_others(page: Page, stack: Stack, world: World) -> None:
    """Register servers that are never opened."""
    common = ("register_server", "--user", ADMIN[0], "--disabled")
    socket = ("--url", "wss://legacy.example.com/ws", "--era", "legacy", "--root", "/srv/data=Data")
    stack.manage(*common, "--name", "Old sockets", *socket, "--tag", "legacy")
    stack.manage(*common, "--name", "Retired", "--url", "https://retired.example.com/mcp")
    page.goto(f"/servers/{world.archived}/archive/")
    page.get_by_role("button", name="Archive").click()
    page.wait_for_url("**/servers/")


#: a week of storage under limits, the last runs, and redaction rules
KEEPING = """
from datetime import timedelta
from django.utils import timezone
from servers.models import BackgroundJob, RedactionRule, Server
from sessions.models import RetentionLimit, StorageHour
now = timezone.now()
sizes = dict(calls=(9000, 11_000_000), payloads=(18000, 240_000_000), events=(36000, 38_000_000), logs=(2100, 900_000), versions=(12, 400_000))
for kind, (rows, size) in sizes.items():
    for day in range(40, 0, -1):
        at = (now - timedelta(days=day)).replace(minute=0, second=0, microsecond=0)
        StorageHour.objects.create(kind=kind, hour=at, first=1000 - day, last=1000 - day, until=at, rows=rows, bytes=size)
RetentionLimit.objects.create(kind="calls", days=365)
RetentionLimit.objects.create(kind="payloads", days=90, bytes=12_000_000_000)
RetentionLimit.objects.create(kind="logs", days=30)
done = dict(state="succeeded", requested_name="ada", started_at=now, finished_at=now)
BackgroundJob.objects.create(kind="retention", detail="Removed arguments and results: 18,012, server logs: 2,100.", **done)
would = dict(payloads=dict(before=(now - timedelta(days=90)).isoformat(), rows=18012, bytes=241_000_000), logs=dict(before=(now - timedelta(days=30)).isoformat(), rows=2100, bytes=900_000))
BackgroundJob.objects.create(kind="retention_trial", detail="Would remove 20,112 rows, 242 MB.", result=dict(would_remove=would), **done)
RedactionRule.objects.create(path="$..password", created_by_name="ada", note="Passwords of any tool")
RedactionRule.objects.create(path="$.user.email", part="result", target="get_*", server=Server.objects.first(), created_by_name="ada")
RedactionRule.objects.create(path="$.card.number", part="arguments", target="pay", enabled=False, created_by_name="ada")
"""

#: one job in each state; the running one's heartbeat is in the future, so that it never counts as dead
#: a pinned package with an update whose tools were compared, and one that changed at the registry
PACKAGES = """
import json
from datetime import timedelta
from django.utils import timezone
from servers.models import PinnedPackage, Server
now = timezone.now()
def lock(version, **more):
    packages = dict([("", dict(dependencies=dict()))])
    for name, number in more.items():
        packages["node_modules/" + name] = dict(version=number, integrity="sha512-" + name + number)
    return json.dumps(dict(packages=packages))
def pin(server, state, version, integrity, lock, **fields):
    known = dict(ecosystem="npm", requested="@acme/notes-server", name="@acme/notes-server", dependencies=84)
    when = dict(pinned_at=now - timedelta(days=3), pinned_name="ada")
    PinnedPackage.objects.create(server=server, state=state, version=version, integrity=integrity, lock=lock, **(known | when | fields))
def register(slug, name):
    server = Server.objects.create(slug=slug, name=name, transport="stdio", command="npx", arguments=["-y", "@acme/notes-server"], enabled=False)
    server.identities.create()
    return server
old, new = "sha512-SWsVtH/0vULSQStoZ6xxH2K09Li8fXYTMC64ZeogCdpZ3XSi1eCPOByV1OpuJxuI3OcmHhosDWYyii07tpPsLw==", "sha512-Sk4NQd3GFY0WZWCzndwFMPwJhtD0y9qjsQ+pjID0/03nK9pxyBCUoUHCho8QYBLBVhi0ssL8UkNPHqbgSOFPIQ=="
before = dict(name="add_note", description="Adds a note.", inputSchema=dict(type="object", properties=dict(text=dict(type="string"))))
after = json.loads(json.dumps(before)) | dict(description="Adds a note to a folder.")
after["inputSchema"] |= dict(properties=dict(text=dict(type="string"), folder=dict(type="string")), required=["folder"])
change = dict(name="add_note", change="breaking", reasons=["folder is now required."], before=json.dumps(before), after=json.dumps(after))
tools = dict(added=["search_notes"], removed=["list_notes"], changed=[change], more_changed=0, same=6, known=True)
notes = register("acme-notes", "Acme notes")
one, two = lock("1.2.3", zod="3.25.1", hono="4.11.3", which="5.0.0"), lock("1.3.0", zod="4.0.2", hono="4.11.3", ajv="8.17.1")
pin(notes, "pinned", "1.2.3", old, one, checked_at=now - timedelta(minutes=4))
pin(notes, "previous", "1.2.2", "sha512-previous", one)
pin(notes, "offered", "1.3.0", new, two, pinned_at=now - timedelta(minutes=4), compared_at=now, tools=tools)
other = register("acme-changed", "Acme changed")
pin(other, "pinned", "1.2.3", old, one, pinned_name="", checked_at=now, changed_integrity=new, changed_name="@acme/notes-server")
pin(other, "offered", "1.2.3", new, one, pinned_at=now)
"""

#: exports in each state, a schedule, and sinks that no worker touches: leased, or with their next attempt far ahead
EXPORTS = """
from datetime import timedelta
from django.contrib.auth.models import User
from django.utils import timezone
from servers.audit.query import head_seq
from servers.exporting import files
from servers.models import BackgroundJob, Export, ExportSchedule, Sink
now, ada = timezone.now(), User.objects.get(username="{admin}")
far = now + timedelta(days=9)
def job(state, **fields):
    return BackgroundJob.objects.create(kind="export", state=state, requested_name="ada", **fields)
def export(**fields): return Export.objects.create(**(dict(owner=ada, owner_name="ada", format="jsonl", last_seq=48_211) | fields))
over = dict(finished_at=now, events=48_211, size=61_300_400, digest="5f0c3a" + "0" * 58, host="worker-2.example.com")
export(format="csv", query="kind:sign-in since:2026-11-01", **(over | dict(events=312, size=91_000)))
export(failed=True, finished_at=now, detail="The disk of the worker is full. Free some space, or export fewer events.")
export(payloads=True, expires_at=far, **over)
ready = export(expires_at=far, **(over | dict(host=files.machine())))
files.path_of(ready).write_text("")
begun = dict(started_at=now, heartbeat_at=now + timedelta(days=1), attempts=1)
export(payloads=True, job=job("running", done=18_000, total=48_211, **begun))
store = dict(target="s3", endpoint="https://s3.eu-central-1.amazonaws.com", region="eu-central-1", bucket="audit-archive", prefix="mcpadmin/production", access_key="AKIAIOSFODNN7EXAMPLE")
archive = ExportSchedule.objects.create(name="Archive", format="jsonl", interval="daily", owner=ada, owner_name="ada", next_at=far, cursor=48_211, **store)
export(owner=None, schedule=archive, place="https://s3.eu-central-1.amazonaws.com/audit-archive/mcpadmin/production/mcpadmin-audit-1-48211-20261124T000000Z.jsonl", **over)
export(owner=None, schedule=archive, failed=True, finished_at=now, detail="s3.eu-central-1.amazonaws.com refused the upload to audit-archive: AccessDenied (HTTP 403).")
def sink(name, kind, address, **fields):
    return Sink.objects.create(name=name, kind=kind, address=address, created_name="ada", cursor=head_seq(), **fields)
sink("Grafana Loki", "otlp", "https://otel.example.com/v1/logs", lease_until=far, delivered=48_211, delivered_at=now)
failing = dict(failures=7, failing_since=now - timedelta(minutes=2), next_attempt_at=far)
words = "The receiver answered with HTTP 503: upstream connect error"
down = sink("SIEM", "http", "https://siem.example.com/audit", delivered=47_900, delivered_at=now, last_detail=words, **failing)
Sink.objects.filter(pk=down.pk).update(cursor=max(0, head_seq() - 12), test_requested_at=now, test_ended_at=now, test_detail=words)
sink("Night shift syslog", "syslog", "logs.example.com:6514", paused_at=now)
print(down.uid, archive.uid)
"""

JOBS = """
from datetime import timedelta
from django.utils import timezone
from servers.models import BackgroundJob
now = timezone.now()
BackgroundJob.objects.all().delete()
def job(kind, state, **fields): BackgroundJob.objects.create(kind=kind, state=state, **fields)
ended = now - timedelta(minutes=3)
over = dict(started_at=ended - timedelta(seconds=41), finished_at=ended, attempts=1)
job("rotation", "failed", requested_name="ada", detail="The key ring lacks k1. Restore the key ring first.", **over)
broken = dict(ok=False, checked=16, first_bad_seq=17, reason="Event 17 is missing.")
job("verification", "failed", detail="Broken at event 17. Event 17 is missing.", result=broken, **over)
verified = dict(ok=True, checked=12_345)
job("verification", "succeeded", requested_name="ada", detail="All 12,345 events verified.", result=verified, **over)
begun = dict(started_at=now, heartbeat_at=now + timedelta(days=1), attempts=1)
job("rotation", "running", requested_name="ada", done=800, total=1_500, **begun)
lost = "The worker stopped responding."
job("housekeeping", "interrupted", detail=lost, retry_at=now + timedelta(minutes=14), **begun)
"""


def register_troubled(page: Page, stack: Stack, world: World) -> None:
    """Register a failing server, a server that no worker may open, and a paused server."""
    common = ("register_server", "--user", ADMIN[0])
    stack.manage(
        *common, "--name", "Broken", "--", "/bin/sh", "-c", "cat /etc/fstab; echo no module named orders >&2; exit 3"
    )
    stack.manage(*common, "--name", "Embeddings", "--worker-label", "gpu", "--", "python3")
    stack.manage(*common, "--name", "Held back", "--policy", "on_demand", "--", "python3")
    page.goto(f"/servers/{world.paused}/tools/")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused by").wait_for()
    page.goto(f"/servers/{world.failing}/info/")
    expect(page.locator(".title .tag").first).to_contain_text("Failing", timeout=2 * READY_MS)


def guest(browser: Browser, stack: Stack) -> list[Any]:
    """The cookies of a user who may view servers and nothing else."""
    stack.shell(
        "from django.contrib.auth.models import Permission, User\n"
        f"user = User.objects.create_user('guest', password={ADMIN[1]!r})\n"
        "user.user_permissions.add(Permission.objects.get(codename='view_server'))"
    )
    with watched_context(browser, stack.base_url) as (context, _):
        sign_in(context.new_page(), "guest", ADMIN[1])
        return context.cookies()


def run_tool(page: Page, server: str, tool: str, arguments: dict[str, str]) -> None:
    page.goto(f"/servers/{server}/tools/?tool={tool}")
    # Before the page is live, the button posts the form and leads to the call's own page.
    expect(page.get_by_role("status").filter(has_text="Live").first).to_be_visible()
    for name, value in arguments.items():
        page.locator(f"#arg-{name}").fill(value)
    page.get_by_role("button", name="Run tool").click()
    card = page.locator("#results .call-slot").first
    expect(card).to_contain_text("Tool error" if tool == "fail_on_purpose" else "Succeeded", timeout=READY_MS)


def note_rows(stack: Stack, world: World) -> None:
    rows = stack.rows("SELECT uid, target FROM mcp_sessions_call ORDER BY id")
    calls = {row["target"]: str(UUID(row["uid"])) for row in rows}
    world.succeeded, world.failed = calls["greet"], calls["fail_on_purpose"]
    world.questions = seeded(stack.shell(SEED % {"call": world.succeeded}))
    world.audit = int(stack.rows("SELECT max(seq) AS seq FROM servers_auditevent WHERE call_uid IS NOT NULL")[0]["seq"])
