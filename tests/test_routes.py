"""Every route of the URLconf refuses visitors who are not signed in, lack a CSRF token or lack a permission.

The list of routes comes from the URLconf, so a new route is tested without being named here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from servers.audit import payloads, query
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.definitions.versions import store_listing
from servers.enums import AuditAction, DefinitionKind, PayloadKind
from servers.models import AgentToken, AuditAlarm, AuditEvent, OAuthClient, Server, ServerDraft
from sessions.enums import CallState, QuestionKind, WireKind
from sessions.models import Approval, Call, McpSession, Question
from tests.servers.cast import create_draft, over_stdio
from tests.servers.conftest import person
from tests.sessions.host.make import make_call, make_session
from tests.sessions.subscriptions.rows import add_version, make_subscription
from tests.sessions.wire.rows import add_message
from tests.tools.url_routes import written_routes

pytestmark = pytest.mark.django_db(transaction=True)

PROBES = {"healthz", "readyz"}
#: asked by agents, which have no cookie that a form of another site could misuse
OF_PROGRAMS = {"oauth:token", "oauth:revoke", "oauth:register", "browser_reports:receive"}
DISCOVERY = {"oauth_client", "protected_resource", "authorization_server"}
OPEN_TO_ALL = PROBES | OF_PROGRAMS | DISCOVERY | {"setup", "account_link"}
UID = str(uuid4())
SAMPLES = {
    "<slug:slug>": "orders",
    "<uuid:uid>": UID,
    "<uuid:other>": UID,
    "<int:seq>": "1",
    "<str:token>": "no-such-token",
    "<int:position>": "0",
    "<int:number>": "1",
    "<int:user_id>": "1",
    "<int:group_id>": "1",
    "<slug:kind>": "tool",
    "<slug:part>": "0",
    "<slug:alias>": "orders",
    "<str:stream>": "calls",
    "<int:key>": "987654321",
    "<slug:digest>": "0" * 64,
    "<str:key>": "registration",
    "<str:digest>": "0" * 64,
}
ARGUMENT, RESULT, DRAFTED = "argument-nobody-may-read", "result-nobody-may-read", "draft-nobody-may-read"
ASKED = "question-nobody-may-read"


@dataclass(frozen=True)
class Route:
    name: str
    written: str
    path: str

    def __str__(self) -> str:
        return self.name or self.path


def routes() -> Iterator[Route]:
    for route in written_routes():
        yield Route(route.name, route.written, _filled(route.written))


def _filled(written: str) -> str:
    for place, sample in SAMPLES.items():
        written = written.replace(place, sample)
    assert "<" not in written, f"add a sample for the parameter of {written}"
    return written


ROUTES = list(routes())
CLOSED = [route for route in ROUTES if route.name not in OPEN_TO_ALL]


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    """The writer thread keeps a connection, and the next test may use another database."""
    yield
    writing.reset()


@pytest.fixture
def admin(db: None) -> Any:
    return get_user_model().objects.create_superuser("ada", password="correct horse battery")


@pytest.fixture
def world(admin: Any) -> Call:
    """A server with a tool, another user's finished call, its event in the chain, and another user's draft."""
    session: McpSession = make_session("orders")
    listing = [{"name": "echo", "inputSchema": {"type": "object"}}]
    store_listing(session.server, DefinitionKind.TOOL, listing, session.state_since)
    call = make_call(session, "echo", text=ARGUMENT)
    result = payloads.store(PayloadKind.RESULT, json.dumps({"content": [{"type": "text", "text": RESULT}]}))
    ended = {"finished_at": session.state_since, "error_message": RESULT, "schema_violation": RESULT}
    told = {"state": CallState.RPC_ERROR, "error_data": RESULT, "progress_message": RESULT}
    Call.objects.filter(pk=call.pk).update(uid=UID, result=result, user=admin, **ended, **told)
    session.server.icons.create(digest="0" * 64, mime="image/png", data=b"icon", expires_at=session.state_since)
    draft = create_draft(Actor.of_user(admin), admin, over_stdio(command=DRAFTED))
    ServerDraft.objects.filter(pk=draft.pk).update(uid=UID)
    AuditAlarm.objects.create(uid=UID, kind="broken", seq=1, words="Event 1 is missing.", found_at=timezone.now())
    add_version(make_subscription(session, uid=UID), RESULT)
    add_message(session.server, WireKind.ERROR, body={"a": ARGUMENT}, detail=RESULT, call_uid=UID)
    _ask(session)
    token = {"digest": "0" * 64, "expires_at": timezone.now() + timedelta(days=1)}
    made = AgentToken.objects.create(uid=UID, public_id="a" * 12, user=admin, name=DRAFTED, **token)
    OAuthClient.objects.create(uid=UID, kind="added", client_id="a-client", name=DRAFTED)
    later = timezone.now() + timedelta(minutes=10)
    Approval.objects.create(uid=UID, call=call, token=made, why="asks", created_at=timezone.now(), expires_at=later)
    return Call.objects.get(pk=call.pk)


def _ask(session: McpSession) -> None:
    """A request of the server that waits in the inbox."""
    asked = {"mode": "form", "message": ASKED, "requestedSchema": {"type": "object", "properties": {}}}
    Question.objects.create(
        uid=UID,
        session=session,
        server=session.server,
        server_name=session.server.name,
        kind=QuestionKind.FORM,
        method="elicitation/create",
        origin="request",
        summary=ASKED,
        question=payloads.store(PayloadKind.QUESTION, json.dumps(asked)),
        created_at=timezone.now(),
        expires_at=timezone.now() + timedelta(minutes=10),
    )


@pytest.mark.parametrize("method", ["get", "post"])
def test_no_one_who_is_not_signed_in_gets_through(method: str, world: Call, subtests: pytest.Subtests) -> None:
    client = Client()
    for route in CLOSED:
        client.cookies.clear()
        with subtests.test(str(route)):
            answer = getattr(client, method)(route.path)
            if answer.status_code == 302:
                assert answer["Location"].startswith("/accounts/login/")
            else:
                assert answer.status_code in (401, 403, 405)
            assert not leaks(answer)


def test_a_post_without_the_token_is_refused(world: Call, admin: Any, subtests: pytest.Subtests) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin)
    before = AuditEvent.objects.count()
    for route in ROUTES:
        if route.name in PROBES | OF_PROGRAMS:
            continue
        with subtests.test(str(route)):
            answer = client.post(route.path)
            assert answer.status_code == 403
            assert b"csrf" in answer.content.lower() or b"form" in answer.content.lower()
            assert AuditEvent.objects.count() == before
            assert Server.objects.get().enabled


def leaks(answer: Any) -> list[str]:
    text = b"".join(answer).decode() if answer.streaming else answer.content.decode()
    return [word for word in (ARGUMENT, RESULT, DRAFTED, ASKED) if word in text]


# --- too few permissions ---------------------------------------------------------------------------------------------
# The responses to a user with the given permissions: (route, method) -> the missing permission. All other routes are
# open.
LOOKS = {
    ("servers:add", "get"): "add_server",
    ("servers:add", "post"): "add_server",
    ("servers:read_source", "post"): "add_server",
    ("servers:demo", "post"): "add_server",
    ("servers:test", "post"): "add_server",
    ("servers:settings", "get"): "change_server",
    ("servers:settings", "post"): "change_server",
    ("servers:clone", "get"): "add_server",
    ("servers:clone", "post"): "add_server",
    ("servers:roots", "post"): "change_server",
    ("servers:enable", "post"): "change_server",
    ("servers:disable", "get"): "change_server",
    ("servers:disable", "post"): "change_server",
    ("servers:archive", "get"): "change_server",
    ("servers:archive", "post"): "change_server",
    ("servers:restore", "post"): "change_server",
    ("servers:delete", "get"): "delete_server",
    ("servers:delete", "post"): "delete_server",
    **{
        (f"servers:{verb}", "post"): "change_server" for verb in ("disconnect", "reconnect", "retry", "pause", "resume")
    },
    **{(f"servers:package_{verb}", "post"): "change_server" for verb in ("check", "compare", "update", "back")},
    ("servers:log_level", "post"): "change_server",
    ("servers:legacy", "get"): "change_server",
    ("servers:legacy", "post"): "change_server",
    ("release_instance", "post"): "administer",
    ("jobs:list", "get"): "view_backgroundjob",
    ("jobs:rotate_keys", "get"): "administer",
    ("jobs:rotate_keys", "post"): "administer",
    **{
        (f"privacy:{name}", method): "administer"
        for names, methods in (("index add_rule rule delete_rule", ("get", "post")), ("try switch_rule", ("post",)))
        for name in names.split()
        for method in methods
    },
    ("oauth:clients", "get"): "administer",
    **{(f"oauth:{name}", "post"): "administer" for name in ("registration", "documents", "unblock")},
    **{(f"oauth:{name}", method): "administer" for name in ("add", "block", "delete") for method in ("get", "post")},
    **{("storage:index", method): "administer" for method in ("get", "post")},
    **{(f"storage:{name}", "post"): "administer" for name in ("run", "try")},
    ("settings:index", "get"): "administer",
    ("browser_reports:list", "get"): "administer",
    ("browser_reports:clear", "post"): "administer",
    ("settings:change", "post"): "administer",
    ("erase_payload", "get"): "erase_payload",
    ("erase_payload", "post"): "erase_payload",
    ("calls:result", "get"): "view_payload",
    ("calls:arguments", "get"): "view_payload",
    ("calls:content", "get"): "view_payload",
    ("calls:structured", "get"): "view_payload",
    ("calls:part", "get"): "view_payload",
    ("calls:use", "get"): "view_payload",
    ("calls:table", "get"): "view_payload",
    ("calls:table_csv", "get"): "view_payload",
    ("calls:repeat", "post"): "view_payload",
    ("calls:save", "post"): "view_payload",
    ("calls:compare", "get"): "view_payload",
    ("servers:protocol_export", "post"): "view_payload",
    ("servers:subscribe", "post"): "manage_subscription",
    ("subscriptions:end", "post"): "manage_subscription",
    ("subscriptions:settings", "get"): "manage_subscription",
    ("subscriptions:settings", "post"): "manage_subscription",
    ("subscriptions:test", "post"): "manage_subscription",
    ("subscriptions:delete", "get"): "manage_subscription",
    ("subscriptions:delete", "post"): "manage_subscription",
    ("subscriptions:content", "get"): "view_payload",
    ("inbox:request", "get"): "answer_question",
    ("inbox:approval_arguments", "get"): "answer_question",
    ("inbox:take", "post"): "answer_question",
    ("inbox:more_time", "post"): "answer_question",
    ("inbox:answer", "post"): "answer_question",
    **{(f"inbox:{verb}", "post"): "answer_question" for verb in ("approve", "refuse")},
    **{
        (f"servers:{verb}", "post"): "change_server"
        for verb in ("add_agent_rule", "change_agent_policy", "remove_agent_rule")
    },
    ("servers:remove_agent_rule", "get"): "change_server",
    ("audit:list", "get"): "view_auditevent",
    ("audit:detail", "get"): "view_auditevent",
    ("audit:verify", "post"): "view_auditevent",
    ("audit:proof", "get"): "view_auditevent",
    ("audit:verifier", "get"): "view_auditevent",
    ("audit:public_key", "get"): "view_auditevent",
    ("audit:acknowledge", "post"): "administer",
    ("exports:list", "get"): "view_auditevent",
    ("exports:add", "get"): "view_auditevent",
    ("exports:add", "post"): "view_auditevent",
    ("exports:download", "get"): "view_auditevent",
    ("exports:delete", "post"): "view_auditevent",
    **{
        (f"exports:{name}", method): "administer"
        for methods, names in (
            (("post",), "run_schedule pause_schedule test_sink pause_sink resume_sink rewind_sink renew_signing"),
            (("get", "post"), "add_schedule schedule delete_schedule add_sink sink delete_sink"),
        )
        for name in names.split()
        for method in methods
    },
    ("credentials:list", "get"): "view_credential",
    ("credentials:references", "get"): "grant_reference",
    ("credentials:references", "post"): "grant_reference",
    ("credentials:revoke_reference", "get"): "grant_reference",
    ("credentials:revoke_reference", "post"): "grant_reference",
    ("credentials:add", "get"): "manage_credential",
    ("credentials:add", "post"): "manage_credential",
    ("credentials:detail", "get"): "view_credential",
    ("credentials:replace", "post"): "view_credential",
    ("credentials:delete", "get"): "view_credential",
    ("credentials:delete", "post"): "view_credential",
    ("credentials:attach", "post"): "change_server",
    ("credentials:detach", "post"): "change_server",
    ("credentials:issuer", "get"): "change_server",
    ("credentials:issuer", "post"): "change_server",
    **{
        (f"agents:{name}", method): "change_server"
        for name in ("add_bundle", "import_bundle")
        for method in ("get", "post")
    },
    ("agents:restore_bundle", "post"): "change_server",
    ("servers:import", "get"): "add_server",
    ("servers:import", "post"): "add_server",
    ("servers:import_preview", "get"): "add_server",
    ("servers:import_preview", "post"): "add_server",
    ("servers:sign_in", "get"): "change_server",
    ("servers:sign_in", "post"): "change_server",
    ("servers:sign_in_progress", "get"): "change_server",
    ("servers:sign_in_go", "get"): "change_server",
    **{
        (f"users:{name}", method): "manage_users"
        for methods, names in (
            (("get",), "list detail groups"),
            (("post",), "reissue enable reset end_sign_ins end_sign_in"),
            (
                ("get", "post"),
                "add_service_account invite revoke permissions disable hand_over end_identity delete add_group group "
                "delete_group",
            ),
        )
        for name in names.split()
        for method in methods
    },
}
CALLS_TOO = {
    ("servers:cancel_task", "post"): "call_tool",
    ("agents:use", "get"): "call_tool",
    ("agents:use", "post"): "call_tool",
    ("agents:issue", "get"): "call_tool",
    ("agents:issue", "post"): "call_tool",
    ("servers:call", "post"): "call_tool",
    ("servers:read", "post"): "call_tool",
    ("servers:get_prompt", "post"): "call_tool",
    ("servers:connect", "post"): "call_tool",
    ("servers:refresh", "post"): "call_tool",
    ("calls:cancel", "post"): "call_tool",
    ("servers:own_sign_in", "get"): "call_tool",
    ("servers:own_sign_in", "post"): "call_tool",
    ("servers:own_credential", "get"): "call_tool",
    ("servers:own_credential", "post"): "call_tool",
}
NAMED = {"servers:call": "?tool=echo", "servers:tool_form": "?tool=echo", "servers:definition": "?key=echo"}
# Other users' drafts are hidden (404). A tool call has no completion values.
HIDDEN = {"servers:test_progress", "servers:expand", "calls:values"}
# No row of the sample's key, no saved view, no named definition, another person's token, no bundle of the server's short
# name.
MISSING = {
    *(("explorer:row", "get"), ("explorer:delete_view", "get"), ("explorer:delete_view", "post")),
    ("servers:approve_definition", "post"),
    *(("agents:policy", "get"), ("agents:revoke", "get"), ("agents:revoke", "post"), ("agents:add_rule", "post")),
    *(("agents:change_policy", "post"), ("agents:remove_rule", "get"), ("agents:remove_rule", "post")),
    *(("agents:bundle", "get"), ("agents:export_bundle", "post"), ("agents:bundle_policy", "get")),
    *((f"agents:{name}", "post") for name in ("change_bundle_policy", "add_bundle_rule", "remove_bundle_rule")),
    ("agents:remove_bundle_rule", "get"),
}
MISSING |= {
    (f"agents:{name}", method)
    for name in ("edit_bundle", "bundle_member", "bundle_tool", "delete_bundle")
    for method in ("get", "post")
}
MISSING |= {(f"saved_calls:{name}", method) for name in ("run", "change", "delete") for method in ("get", "post")}
# Without the parameters of OAuth, the request matches no sign-in and no client.
FORGED = {("sign_in_callback", "get"), ("oauth:authorize", "get"), ("oauth:authorize", "post")}


@pytest.mark.parametrize(
    ("name", "permissions", "lacking", "skipped"),
    [
        ("vera", ["view_server"], CALLS_TOO, LOOKS),  # what is refused to carl is refused to vera, who may do less
        ("carl", ["view_server", "call_tool"], LOOKS, {}),
    ],
    ids=["vera", "carl"],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_a_lacking_permission_is_refused_in_words_and_recorded_and_nothing_reserved_is_shown(
    method: str,
    name: str,
    permissions: list[str],
    lacking: dict[tuple[str, str], str],
    skipped: dict[tuple[str, str], str],
    world: Call,
    subtests: pytest.Subtests,
) -> None:
    client = Client()
    client.force_login(person(name, *permissions))
    for route in CLOSED:
        if (route.name, method) in skipped:
            continue
        permission = lacking.get((route.name, method))
        with subtests.test(str(route)):
            before = query.head_seq()
            answer = getattr(client, method)(route.path + NAMED.get(route.name, ""))
            denials = AuditEvent.objects.filter(seq__gt=before, action=AuditAction.PERMISSION_DENY, actor_name=name)
            if permission is not None:
                assert answer.status_code == 403
                assert b"Ask an administrator" in answer.content
                assert [json.loads(event.body)["details"]["right"] for event in denials] == [permission]
            else:
                hidden = (route.name in HIDDEN and method == "get") or (route.name, method) in MISSING
                assert (answer.status_code == 404) == hidden
                assert answer.status_code in (200, 204, 302, 303, 404, 405, 422) or (route.name, method) in FORGED
                assert not denials
            assert leaks(answer) == []


def test_who_sees_no_servers_cannot_tell_that_any_exist(world: Call) -> None:
    client = Client()
    client.force_login(person("stan", "call_tool", "change_server", "delete_server", "add_server", "view_payload"))
    for route in CLOSED:
        if "slug" in route.written or "calls:" in route.name:
            for method in ("get", "post"):
                assert getattr(client, method)(route.path).status_code in (404, 405), route
        elif route.name not in ("live_ticket", "servers:demo"):
            assert b"orders" not in client.get(route.path).content.lower(), route
