"""To which member of a bundle a URI leads, however many members and URIs there are: one query."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.audit.record import Actor
from servers.bundles import changing
from servers.bundles.changing import Membership
from servers.enums import DefinitionKind
from servers.models import Bundle, Definition
from sessions.agents import endpoints
from sessions.agents.catalog import bundle_contents, bundles, lists
from sessions.agents.endpoints import Entry
from sessions.agents.exchange import Exchange
from sessions.mcp.core.versions import Era
from sessions.mcp.server.refusals import Refusal
from sessions.models import McpSession
from tests.servers.conftest import person
from tests.sessions.agents.door import make_listed
from tests.sessions.agents.placed import principal_of

pytestmark = pytest.mark.django_db(transaction=True)
SHARED, OWN = "https://docs.example/a", "test://wiki.mcp/pages/7"


def define(session: McpSession, kind: DefinitionKind, *uris: str) -> None:
    now = timezone.now()
    for position, uri in enumerate(uris):
        Definition.objects.create(
            server=session.server,
            identity=session.identity,
            kind=kind,
            key=uri,
            body="{}",
            position=position,
            digest="0" * 64,
            first_seen_at=now,
            changed_at=now,
        )


@pytest.fixture
def entry() -> Entry:
    ann = person("ann", "view_server", "change_server", "call_tool")
    sessions = {slug: make_listed(slug) for slug in ("web", "wiki", "mail")}
    for slug in ("wiki", "mail"):
        define(sessions[slug], DefinitionKind.RESOURCE, SHARED)
    define(sessions["wiki"], DefinitionKind.RESOURCE_TEMPLATE, "test://pages/{number}", "test://hidden/{x}")
    members = [Membership(one.server, slug, resources=("*", "!test://hidden*")) for slug, one in sessions.items()]
    changing.create(Actor.of_user(ann), ann, changing.BundleInput("Team", members, "team"))
    principal = principal_of(ann)
    return Entry(principal, endpoints.endpoint_of(principal, "team"))


def asked(entry: Entry, method: str, params: dict[str, Any]) -> Exchange:
    return bundles.routed(Exchange(entry, Era.MODERN, "2026-07-28", 1, method, params, {}, "", ""))


@pytest.mark.parametrize(
    ("uri", "leads"),
    [(SHARED, ("wiki", SHARED)), (OWN, ("wiki", "test://pages/7")), ("test://web.mcp/new", ("web", "test://new"))],
)
def test_a_uri_leads_to_its_member(entry: Entry, uri: str, leads: tuple[str, str]) -> None:
    with CaptureQueriesContext(connection) as queries:
        found = asked(entry, "resources/read", {"uri": uri})
    assert (found.entry.endpoint.slug, found.params["uri"]) == leads
    assert len(queries) == 1


@pytest.mark.parametrize("uri", ["https://docs.example/b", "test://wiki.mcp/hidden/1", "test://nobody.mcp/a", "x"])
def test_a_uri_that_no_member_offers_leads_nowhere(entry: Entry, uri: str) -> None:
    with pytest.raises(Refusal, match="Resource not found"):
        asked(entry, "resources/read", {"uri": uri})


def test_many_uris_are_looked_up_together(entry: Entry) -> None:
    wanted = {SHARED, OWN, "https://docs.example/b", "test://wiki.mcp/hidden/1", "test://nobody.mcp/a", "x"}
    with CaptureQueriesContext(connection) as queries:
        assert bundles.readable(entry, wanted) == {SHARED, OWN}
    assert len(queries) == 1


def test_a_completion_is_of_the_template_of_its_member(entry: Entry) -> None:
    ref = {"type": "ref/resource", "uri": "test://wiki.mcp/pages/{number}"}
    with CaptureQueriesContext(connection) as queries:
        found = asked(entry, "completion/complete", {"ref": ref, "argument": {}})
    assert (found.entry.endpoint.slug, found.params["ref"]["uri"]) == ("wiki", "test://pages/{number}")
    assert len(queries) == 1
    for uri in ("test://wiki.mcp/hidden/{x}", "test://web.mcp/pages/{number}", "test://nobody.mcp/a"):
        with pytest.raises(Refusal, match="Unknown resource template"):
            asked(entry, "completion/complete", {"ref": {**ref, "uri": uri}, "argument": {}})


def test_each_server_that_lists_a_shared_uri_says_on_the_page_whose_it_is_and_can_hide_it(entry: Entry) -> None:
    user, bundle = entry.principal.user, Bundle.objects.get()

    def shown() -> dict[str, tuple[bool, str]]:
        rows = list(changing.current_members(bundle))
        lines = bundle_contents.contents(user, bundle, rows).lines
        return {one.row.member.alias: (one.listed, one.reason) for one in lines if one.row.key == SHARED}

    def hide(alias: str) -> None:
        wanted = changing.with_member(bundle, alias, resources=("*", f"!{SHARED}"))
        changing.change(Actor.of_user(user), user, bundle, wanted, bundle.version)
        bundle.refresh_from_db()

    assert shown() == {"wiki": (True, ""), "mail": (False, "Belongs to Wiki, which lists it first.")}
    hide("wiki")
    assert shown() == {"wiki": (False, ""), "mail": (True, "")}
    hide("mail")
    assert shown() == {"wiki": (False, ""), "mail": (False, "")}
    now = Entry(entry.principal, endpoints.endpoint_of(entry.principal, "team"))
    assert bundles.readable(now, [SHARED]) == set()


def test_a_resource_whose_uri_no_client_reads_costs_no_other(entry: Entry) -> None:
    session = McpSession.objects.get(server__slug="web")
    define(session, DefinitionKind.RESOURCE, "https://", "test://a")
    for row in Definition.objects.filter(kind=DefinitionKind.RESOURCE):
        Definition.objects.filter(pk=row.pk).update(body=json.dumps({"uri": row.key, "name": "a"}))
    page = lists.page(entry, "resources/list", {}, Era.MODERN)
    assert [one["uri"] for one in json.loads(page)["resources"]] == ["test://web.mcp/a", SHARED]
    rows = list(changing.current_members(Bundle.objects.get()))
    lines = bundle_contents.contents(entry.principal.user, Bundle.objects.get(), rows).lines
    reasons = {one.row.key: one.reason for one in lines if one.row.member.alias == "web" and not one.listed}
    assert reasons == {"https://": "Its URI has no host. Clients would reject the whole list."}
