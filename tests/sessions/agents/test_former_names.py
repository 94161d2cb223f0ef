"""A name that a tool had in a bundle before is explained only to those who may use the tool."""

from typing import Any

import pytest

from servers.agents import tokens
from servers.agents.tokens import NewToken, Principal
from servers.audit.record import Actor
from servers.bundles import changing
from servers.bundles.changing import Membership
from servers.enums import DefinitionKind
from servers.models import Bundle, Server
from sessions.agents import endpoints
from sessions.agents.catalog import bundles
from sessions.agents.endpoints import BundleEndpoint, Entry
from sessions.agents.exchange import Exchange
from sessions.mcp.core.versions import Era
from sessions.mcp.server.refusals import Refusal
from tests.servers.conftest import person
from tests.sessions.agents.door import make_listed

pytestmark = pytest.mark.django_db(transaction=True)
SCOPES = ("mcp:list", "mcp:read", "mcp:call")


@pytest.fixture
def ann() -> Any:
    return person("ann", "view_server", "change_server", "call_tool")


@pytest.fixture
def web() -> Server:
    return make_listed("web", "search", "drop").server


def principal_of(user: Any, servers: Any = None, tools: tuple[str, ...] = ()) -> Principal:
    wanted = NewToken("laptop", 7, SCOPES, servers=servers, tools=tools)
    return tokens.principal_of(tokens.issue(Actor.of_user(user), user, wanted).text, "")


def told(principal: Principal, name: str) -> str:
    """The words of the refusal of a call by this name."""
    entry = Entry(principal, endpoints.endpoint_of(principal, "team"))
    params = {"name": name, "arguments": {}}
    exchange = Exchange(entry, Era.MODERN, "2026-07-28", 1, "tools/call", params, {}, "", "")
    with pytest.raises(Refusal) as refused:
        bundles.routed(exchange)
    return refused.value.message


def of(user: Any, *members: tuple[Server, str]) -> Bundle:
    """The bundle, with these members from now on; each tool has a name."""
    wanted = changing.BundleInput("Team", [Membership(one, alias) for one, alias in members], "team")
    known, actor = Bundle.objects.filter(slug="team").first(), Actor.of_user(user)
    if known is None:
        bundle = changing.create(actor, user, wanted)
    else:
        bundle = changing.change(actor, user, known, wanted, known.version)
    place = endpoints.endpoint_of(principal_of(user), "team")
    assert isinstance(place, BundleEndpoint)
    kind = DefinitionKind.TOOL
    bundles.named(place, kind, bundles.rows_of(place.members, [kind]))
    return bundle


def test_a_renamed_tool_is_named_only_to_an_agent_that_may_use_it(ann: Any, web: Server) -> None:
    wiki = make_listed("wiki", "find").server
    of(ann, (web, "web"), (wiki, "wiki"))
    of(ann, (web, "net"), (wiki, "wiki"))
    assert told(principal_of(ann), "web__drop") == "web__drop was renamed to net__drop."
    for limited in (principal_of(ann, servers=[wiki]), principal_of(ann, tools=("search",))):
        assert told(limited, "web__drop") == "Unknown tool: web__drop"


def test_a_tool_of_a_server_that_left_is_named_only_to_an_agent_that_reaches_the_server(ann: Any, web: Server) -> None:
    wiki = make_listed("wiki", "find").server
    of(ann, (web, "web"), (wiki, "wiki"))
    of(ann, (wiki, "wiki"))
    assert told(principal_of(ann), "web__drop") == "web__drop is no longer part of Team."
    for limited in (principal_of(ann, servers=[wiki]), principal_of(ann, tools=("find",))):
        assert told(limited, "web__drop") == "Unknown tool: web__drop"


def test_a_former_name_leads_to_the_new_one_that_no_agent_has_listed_yet(ann: Any, web: Server) -> None:
    bundle = of(ann, (web, "web"))
    wanted = changing.BundleInput("Team", [Membership(web, "net")], "team")
    changing.change(Actor.of_user(ann), ann, bundle, wanted, bundle.version)
    assert told(principal_of(ann), "web__drop") == "web__drop was renamed to net__drop."


def test_an_alias_that_looks_like_the_one_before_renames_as_any_other(ann: Any, web: Server) -> None:
    for before, after in (("al", "ai"), ("ai", "al")):
        of(ann, (web, before))
        of(ann, (web, after))
        principal = principal_of(ann)
        assert told(principal, f"{before}__drop") == f"{before}__drop was renamed to {after}__drop."
        entry = Entry(principal, endpoints.endpoint_of(principal, "team"))
        params = {"name": f"{after}__drop", "arguments": {}}
        exchange = Exchange(entry, Era.MODERN, "2026-07-28", 1, "tools/call", params, {}, "", "")
        assert bundles.routed(exchange).params["name"] == "drop"
