"""The list of servers: pages, order, filters, the last day in a row, and one action on many servers."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.enums import AuditAction, IdentityKind, SignsInAs
from servers.models import AuditEvent, Identity, Server
from sessions.enums import CallState, Desired, SessionCondition, SessionState
from sessions.models import McpSession
from sessions.overview import server_list, server_row
from sessions.statistics import counting, reading
from sessions.views import bulk
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.statistics.conftest import make_calls

pytestmark = pytest.mark.django_db(transaction=True)
PERMISSIONS = ("view_server", "call_tool", "change_server", "delete_server", "manage_stdio", "view_auditevent")


def client_of(name: str, *permissions: str) -> Client:
    client = Client()
    client.force_login(person(name, *permissions))
    return client


@pytest.fixture
def ada() -> Client:
    return client_of("ada", *PERMISSIONS)


def many(count: int) -> list[Server]:
    servers = [
        Server(slug=f"s{number:03}", name=f"S{number:03}", transport="stdio", command="cat") for number in range(count)
    ]
    made = Server.objects.bulk_create(servers)
    identities = Identity.objects.bulk_create([Identity(server=server) for server in made])
    now = timezone.now()
    McpSession.objects.bulk_create([McpSession(server=one.server, identity=one, state_since=now) for one in identities])
    return made


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/servers/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("text", ["büro", "üR", "intern"])
def test_a_server_is_found_by_letters_of_its_tags(ada: Client, text: str) -> None:
    Server.objects.filter(slug=many(2)[1].slug).update(tags=["Büro", "intern"])
    assert set(names(page(ada, f"?text={text}"))) == {"s001"}


def names(text: str) -> list[str]:
    """Of the rows or cards, in their order."""
    return re.findall(r'href="/servers/([^/"]+)/tools/"', text)


def remote() -> McpSession:
    return make_session("remote", transport="streamable_http", url="https://a.example/", command="")


def fail(session: McpSession, detail: str = "exit code 3") -> None:
    McpSession.objects.filter(pk=session.pk).update(
        fault="process_exited", fault_detail=detail, fault_at=timezone.now(), condition=SessionCondition.FAILING
    )


# --- pages -----------------------------------------------------------------------------------------------------------
def test_each_server_is_on_exactly_one_page_and_the_address_keeps_the_filter(ada: Client) -> None:
    servers = many(2 * server_list.PAGE + 3)
    first = page(ada, "?text=s&sort=-name")
    assert f"1–{server_list.PAGE} of {len(servers)}" in first
    found, query = [], "?text=s&sort=-name"
    while query:
        text = page(ada, query)
        found += names(text)
        after = re.search(r'href="(\?[^"]+)">Next', text)
        query = unescape(after[1]) if after else ""
        assert not query or ("text=s" in query and "sort=-name" in query)
    assert found == [server.slug for server in reversed(servers)]


@pytest.mark.parametrize("given", ["99", "0", "-1", "x", "9" * 30])
def test_a_page_that_does_not_exist_is_the_nearest_one(ada: Client, given: str) -> None:
    many(server_list.PAGE + 1)
    assert len(names(page(ada, f"?page={given}"))) == (1 if given == "99" else server_list.PAGE)


@pytest.mark.parametrize("query", ["?sort=name", "?sort=-calls", "?sort=state", "?sort=used", "?view=cards"])
def test_one_server_and_many_cost_the_same_number_of_queries(ada: Client, query: str) -> None:
    def cost() -> int:
        reading._read.cache_clear()
        with CaptureQueriesContext(connection) as queries:
            page(ada, query)
        return len(queries)

    many(1)
    page(ada, query)
    one = cost()
    Server.objects.all().delete()
    many(3 * server_list.PAGE)
    assert cost() == one <= 30


# --- order and filters -----------------------------------------------------------------------------------------------
def three() -> dict[str, McpSession]:
    """`busy` has most calls, `bad` most errors and fails now, `calm` nothing."""
    sessions = {name: make_session(name) for name in ("bad", "busy", "calm")}
    make_calls(sessions["busy"], 5)
    make_calls(sessions["bad"], 2, state=CallState.FAILED)
    make_calls(sessions["busy"], 9, timezone.now() - timedelta(hours=30), state=CallState.FAILED)
    fail(sessions["bad"])
    McpSession.objects.filter(pk=sessions["busy"].pk).update(state=SessionState.READY, last_used_at=timezone.now())
    McpSession.objects.filter(pk=sessions["calm"].pk).update(desired=Desired.CLOSED)
    Server.objects.filter(slug="calm").update(environment="production")
    return sessions


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["bad", "busy", "calm"]),
        ("-name", ["calm", "busy", "bad"]),
        ("-calls", ["busy", "bad", "calm"]),
        ("calls", ["calm", "bad", "busy"]),
        ("-failed", ["bad", "busy", "calm"]),
        ("state", ["bad", "busy", "calm"]),
        ("-state", ["calm", "busy", "bad"]),
        ("-used", ["busy", "bad", "calm"]),
        ("-environment", ["calm", "bad", "busy"]),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_the_list_is_in_the_order_that_the_address_names(
    ada: Client, sort: str, order: list[str], counted: bool
) -> None:
    three()
    if counted:
        counting.count_all()
    assert names(page(ada, f"?sort={sort}")) == order
    assert names(page(ada, f"?sort={sort}&view=cards")) == order


def test_names_are_in_order_without_regard_to_case(ada: Client) -> None:
    for name in ("Zulu", "alpha", "Beta"):
        Server.objects.filter(pk=make_session(name.lower()).server_id).update(name=name)
    found = page(ada, "?sort=name")
    assert found.index(">alpha<") < found.index(">Beta<") < found.index(">Zulu<")
    assert names(page(ada, "?sort=-calls")) == ["alpha", "beta", "zulu"], "equal otherwise"


@pytest.mark.parametrize(
    ("state", "found"),
    [("failing", ["bad"]), ("ready", ["busy"]), ("closed", ["calm"]), ("paused", []), ("connecting", [])],
)
def test_a_state_is_a_filter(ada: Client, state: str, found: list[str]) -> None:
    three()
    text = page(ada, f"?state={state}")
    assert names(text) == found
    assert ("No matching servers" in text) is not found


def test_an_unknown_order_or_state_is_named_and_ignored(ada: Client) -> None:
    three()
    text = page(ada, "?sort=colour&state=blue")
    assert "sort = “colour”" in text
    assert "state = “blue”" in text
    assert names(text) == ["bad", "busy", "calm"]


# --- a row -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("view", ["", "&view=cards"])
def test_a_row_has_the_last_day_and_a_failing_one_its_reason_with_the_way_to_mend_it(ada: Client, view: str) -> None:
    three()
    text = page(ada, f"?sort=name{view}")
    bad = text[text.index("data-server-row") : text.index("/servers/busy/")]
    assert "The process ended: exit code 3" in bad
    assert 'href="/servers/bad/info/"' in bad
    assert "q=last%3A24h+in%3Acalls+server%3Abad" in bad
    busy = text[text.index("/servers/busy/") : text.index("/servers/calm/")]
    assert re.search(r"server%3Abusy\">5\b", busy), "calls of yesterday are not counted"
    assert "outcome" not in busy, "nothing failed in the last day"
    assert "process ended" not in busy


def test_what_a_server_says_of_its_failure_is_text(ada: Client) -> None:
    fail(make_session("bad"), '<script>alert(1)</script>" onmouseover="x')
    text = page(ada)
    assert "<script>alert" not in text
    assert '" onmouseover=' not in text


# --- many at once ----------------------------------------------------------------------------------------------------
def act(client: Client, action: str, servers: list[Server], **fields: Any) -> Any:
    data = {"action": action, "server": [str(server.uid) for server in servers], "query": "text=s&sort=-name"}
    return client.post("/server-actions/", data | fields, follow=True)


def events(action: AuditAction) -> list[str]:
    return sorted(AuditEvent.objects.filter(action=action).values_list("server_name", flat=True))


def test_each_of_many_servers_is_disabled_and_enabled_with_an_event_of_its_own(ada: Client) -> None:
    servers = many(3)
    asked = act(ada, "disable", servers[:2])
    assert "Disable 2 servers?" in asked.content.decode()
    assert Server.objects.filter(enabled=False).count() == 0, "not before it is confirmed"
    done = act(ada, "disable", servers[:2], confirmed="1")
    assert done.redirect_chain == [("/servers/?text=s&sort=-name", 302)]
    assert "2 servers disabled." in done.content.decode()
    assert events(AuditAction.SERVER_DISABLE) == ["S000", "S001"]
    again = act(ada, "enable", servers).content.decode()
    assert "2 servers enabled." in again
    assert "1 server unchanged." in again
    assert events(AuditAction.SERVER_ENABLE) == ["S000", "S001"]


def test_reconnecting_many_asks_each_session_to_restart(ada: Client) -> None:
    servers = many(2)
    Server.objects.filter(pk=servers[1].pk).update(enabled=False)
    text = act(ada, "reconnect", servers, confirmed="1").content.decode()
    assert "1 server reconnecting." in text
    assert "Refused for S001: S001 is disabled. Enable it first." in text
    assert list(McpSession.objects.order_by("pk").values_list("restart_requested", "desired")) == [
        (1, "open"),
        (0, "closed"),
    ]
    assert events(AuditAction.SESSION_OPEN) == ["S000"]


def test_deleting_many_needs_their_number_typed(ada: Client) -> None:
    servers = many(3)
    for typed in ("", "delete 3", "delete"):
        answer = act(ada, "delete", servers[:2], confirmed="1", typed=typed)
        assert answer.status_code == 422
    assert Server.objects.count() == 3
    assert "2 servers deleted." in act(ada, "delete", servers[:2], confirmed="1", typed="delete 2").content.decode()
    assert list(Server.objects.values_list("slug", flat=True)) == ["s002"]
    assert events(AuditAction.SERVER_DELETE) == ["S000", "S001"]


def test_all_that_match_means_the_filters_and_the_confirmation_fixes_which(ada: Client) -> None:
    many(server_list.PAGE + 5)
    make_session("other")
    asked = ada.post("/server-actions/", {"action": "disable", "all": "1", "query": "text=S0"}).content.decode()
    assert f"Disable {server_list.PAGE + 5} servers?" in asked
    chosen = re.findall(r'name="server" value="([^"]+)"', asked)[0]
    late = Server.objects.create(slug="s099", name="S099", transport="stdio", command="cat")
    done = ada.post("/server-actions/", {"action": "disable", "server": chosen, "confirmed": "1", "query": "text=S0"})
    assert done.status_code == 302
    assert set(Server.objects.filter(enabled=True).values_list("slug", flat=True)) == {"other", late.slug}


def test_what_takes_too_long_stops_between_two_servers_and_says_so(
    ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = many(3)
    monkeypatch.setattr(bulk, "SECONDS", -1.0)
    text = act(ada, "disable", servers, confirmed="1").content.decode()
    assert "3 servers not reached in time." in text
    assert Server.objects.filter(enabled=False).count() == 0


@pytest.mark.parametrize(
    ("permissions", "offered"),
    [
        ((), []),
        (("call_tool",), []),
        (("change_server",), ["enable", "disable", "reconnect"]),
        (("delete_server",), ["delete"]),
    ],
)
def test_only_what_a_permission_permits_is_offered_and_done(permissions: tuple[str, ...], offered: list[str]) -> None:
    servers = [remote().server]
    vera = client_of("vera", "view_server", *permissions)
    text = page(vera)
    assert re.findall(r'name="action"\s+value="(\w+)"', text) == offered
    assert ('name="server"' in text) is bool(offered)
    for action in bulk.ACTIONS:
        answer = act(vera, action, servers)
        assert (answer.status_code == 403) is (action not in offered), action
    denied = AuditEvent.objects.filter(action=AuditAction.PERMISSION_DENY).count()
    assert denied == len(bulk.ACTIONS) - len(offered)


def test_a_server_that_one_may_not_change_is_refused_and_the_others_are_done() -> None:
    """Enabling a command needs permission to run commands."""
    command, other = many(1)[0], remote().server
    Server.objects.update(enabled=False)
    otto = client_of("otto", "view_server", "change_server")
    text = act(otto, "enable", [command, other]).content.decode()
    assert "1 server enabled." in text
    assert "Refused for S000: " in text
    assert list(Server.objects.filter(enabled=True)) == [other]
    assert events(AuditAction.PERMISSION_DENY) == ["S000"]


def test_without_permission_to_see_servers_the_list_is_empty_and_nothing_can_be_changed() -> None:
    servers = many(1)
    nil = client_of("nil", "change_server")
    assert names(page(nil)) == []
    assert act(nil, "disable", servers, confirmed="1").status_code == 403
    assert Server.objects.filter(enabled=True).count() == 1


# --- what mends it ------------------------------------------------------------------------------------------------------
NEEDS_SIGN_IN = {
    "fault": "unauthorized",
    "condition": SessionCondition.NEEDS_AUTH,
    "desired": Desired.OPEN,
    "fault_at": timezone.now(),
}


@pytest.mark.parametrize("path", ["/", "/servers/", "/servers/?view=cards"])
def test_a_sign_in_is_offered_to_who_may_and_a_diagnosis_to_all_others(path: str) -> None:
    session = remote()
    McpSession.objects.update(**NEEDS_SIGN_IN)
    Identity.objects.update(challenge={"metadata_url": "https://a.example/m"})
    found = page_at(client_of("vera", "view_server"), path)
    assert fixes(found) == {
        ("/servers/remote/sign-in/", "data-needs-sign-in"),
        ("/servers/remote/info/", "data-without-sign-in"),
    }
    Identity.objects.filter(pk=session.identity_id).update(challenge={})
    McpSession.objects.update(fault="key_needed")
    assert fixes(page_at(client_of("carl", "view_server"), path)) == {
        ("/servers/remote/settings/#credentials", "data-needs-change-server"),
        ("/servers/remote/info/", "data-without-change-server"),
    }


def test_a_page_says_whether_its_reader_may_sign_in_for_all(ada: Client) -> None:
    assert "data-may-sign-in" not in page(ada)
    assert "data-may-sign-in" in page(
        client_of("otto", "view_server", "change_server", "view_credential", "manage_credential")
    )


def test_an_own_sign_in_is_offered_to_who_may_call() -> None:
    session = remote()
    user = person("bea", "view_server", "call_tool")
    Server.objects.update(signs_in_as=SignsInAs.EITHER)
    Identity.objects.update(kind=IdentityKind.PERSONAL, user=user, challenge={"metadata_url": "https://a.example/m"})
    McpSession.objects.update(**NEEDS_SIGN_IN)
    bea = Client()
    bea.force_login(user)
    assert fixes(page(bea)) == {
        ("/servers/remote/identity/sign-in/", "data-needs-call-tool"),
        ("/servers/remote/info/", "data-without-call-tool"),
    }
    assert session.identity_id == Identity.objects.get().pk


def page_at(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def fixes(text: str) -> set[tuple[str, str]]:
    """The links that depend on a permission, with their condition."""
    return set(re.findall(r'href="([^"]+)"\s+(data-(?:needs|without)-[a-z-]+)', text))


# --- while it is open ------------------------------------------------------------------------------------------------
def test_rows_that_changed_are_asked_for_by_their_uids_and_only_those_of_a_page(ada: Client) -> None:
    servers, bad = many(server_list.PAGE + 3), make_session("bad")
    fail(bad)
    before = server_list.mark()
    uids = [f"server={bad.server.uid}", "server=none", *(f"server={server.uid}" for server in servers)]
    with CaptureQueriesContext(connection) as queries:
        text = ada.get(f"/server-states/?{'&'.join(uids)}").content.decode()
    assert text.count('id="state-') == server_list.PAGE
    assert "The process ended: exit code 3" in text
    assert len(queries) <= 8
    assert server_list.mark() == before
    McpSession.objects.filter(pk=bad.pk).update(version=5)
    assert server_list.mark() != before
    assert "state-" not in client_of("none").get(f"/server-states/?{uids[0]}").content.decode()


def test_a_row_is_rendered_again_only_when_it_shows_something_else(ada: Client) -> None:
    (server,) = many(1)
    assert "S000" in page(ada)
    kept = server_row._html.cache_info()
    page(ada)
    assert server_row._html.cache_info().misses == kept.misses
    Server.objects.filter(pk=server.pk).update(name="Renamed <b>")
    assert "Renamed &lt;b&gt;" in page(ada)
