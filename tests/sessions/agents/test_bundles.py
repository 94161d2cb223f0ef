"""A bundle of servers as agents of both eras meet it: names, URIs, members that are down, what is hidden, search."""

import json
import re
import subprocess
from typing import Any

import pytest

from tests.peers.peers import HERE, agent_client, peer_command, peer_python
from tests.sessions.agents import test_clients
from tests.sessions.agents.product import VERSION, Agent, Product, response_of, standing
from tests.sessions.host.harness import eventually
from tests.tools.prepared import ADMIN

pytestmark = pytest.mark.up
CHANGE = """
from django.contrib.auth import get_user_model
from servers.audit.record import Actor
from servers.bundles import changing
from servers.bundles.changing import BundleInput, Membership
from servers.bundles.overrides import Override
from servers.models import Bundle, Server
user = get_user_model().objects.get(username={user!r})
def of(slug, alias, overrides={{}}, **offers):
    said = {{tool: Override(*one) for tool, one in overrides.items()}}
    return Membership(Server.objects.get(slug=slug), alias, overrides=said, **offers)
wanted = BundleInput({name!r}, [of(slug, alias, **offers) for slug, alias, offers in {members!r}], {slug!r}, "Use it well.", {listing!r}, {pinned!r})
known = Bundle.objects.filter(slug={slug!r}).first()
if known: changing.change(Actor.of_user(user), user, known, wanted, known.version)
else: changing.create(Actor.of_user(user), user, wanted)
"""
Members = list[tuple[str, str, dict[str, Any]]]


def bundle(
    product: Product,
    slug: str,
    *members: tuple[str, str] | tuple[str, str, dict[str, Any]],
    listing: str = "all",
    pinned: tuple[str, ...] = (),
) -> None:
    """Create it, or change it to this."""
    given: Members = [(one[0], one[1], one[2] if len(one) > 2 else {}) for one in members]
    product.stack.shell(
        CHANGE.format(user=ADMIN[0], name=slug.title(), members=given, slug=slug, listing=listing, pinned=list(pinned))
    )


@pytest.fixture(scope="module")
def servers(product: Product) -> Product:
    product.register("Every", peer_command("everything"))
    for name in ("Web", "Wiki"):
        product.register(name, (str(peer_python("sdk2")), [str(HERE / "searching_server.py"), name]))
    product.register("Broken", ("/bin/false", []))
    bundle(product, "team", ("web", "web"), ("wiki", "wiki"), ("every", "all"), ("ours", "ours"))
    return product


@pytest.fixture(scope="module")
def token(servers: Product) -> str:
    return servers.token(label="bundled")


@pytest.fixture(params=["legacy", "modern"])
def agent(request: pytest.FixtureRequest, servers: Product, token: str) -> "Both":
    return Both(servers.agent(token, "team"), modern=request.param == "modern")


class Both:
    """The same request in either era."""

    def __init__(self, agent: Agent, *, modern: bool) -> None:
        self.agent, self.modern = agent, modern
        if not modern:
            assert agent.initialize().status_code == 200

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        if self.modern:
            return response_of(self.agent.ask_modern(method, params))
        return self.agent.ask(method, params)

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", {"name": name, "arguments": arguments})


def text(told: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in told["result"]["content"])


def test_two_servers_with_one_tool_are_distinguished_and_every_name_fits_models(servers: Product, agent: Both) -> None:
    result = agent.ask("tools/list")["result"]
    tools = {tool["name"]: tool for tool in result["tools"]}
    assert {"web__search", "wiki__search", "all__echo", "ours__search_notes"} <= tools.keys()
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,48}", name) for name in tools)
    assert (tools["web__search"]["title"], tools["wiki__search"]["title"]) == ("Search (Web)", "Search (Wiki)")
    assert tools["web__search"]["description"] == "Searches."
    assert result["_meta"]["mcpadmin/members"] == dict.fromkeys(("web", "wiki", "all", "ours"), "ok")
    assert [name.partition("__")[0] for name in tools] == sorted(
        (name.partition("__")[0] for name in tools), key=["web", "wiki", "all", "ours"].index
    )
    assert text(agent.call("web__search", query="x")) == "Web: x"
    assert text(agent.call("wiki__search", query="y")) == "Wiki: y"
    (odd,) = (name for name in tools if name.startswith("wiki__odd"))
    assert text(agent.call(odd)) == "odd of Wiki"
    row = servers.calls(target="search")[-1]
    (event,) = servers.stack.rows(
        "SELECT body FROM servers_auditevent WHERE call_uid = ? AND action = 'call:tool:request'", row["uid"]
    )
    details = json.loads(event["body"])["details"]
    assert (details["bundle"], details["named"]) == ("Team", "wiki__search")


def test_a_bundle_introduces_itself_and_offers_what_some_member_has(servers: Product, token: str) -> None:
    old = servers.agent(token, "team").initialize().json()["result"]
    new = servers.agent(token, "team").ask_modern("server/discover").json()["result"]
    assert old["serverInfo"]["name"] == "team"
    for told in (old, new):
        assert {"tools", "resources", "prompts", "completions", "logging"} <= told["capabilities"].keys()
        assert told["capabilities"]["resources"]["subscribe"] is True
        assert told["instructions"].startswith("Use it well.")
        assert "(names that begin with all__)" in told["instructions"]


def test_uris_mean_one_resource_each_in_lists_reads_results_and_errors(agent: Both) -> None:
    listed = {one["uri"] for one in agent.ask("resources/list")["result"]["resources"]}
    assert {"test://web.mcp/page", "test://wiki.mcp/page"} <= listed
    for alias, name in (("web", "Web"), ("wiki", "Wiki")):
        (read,) = agent.ask("resources/read", {"uri": f"test://{alias}.mcp/page"})["result"]["contents"]
        assert (read["uri"], read["text"]) == (f"test://{alias}.mcp/page", f"page of {name}")
        (read,) = agent.ask("resources/read", {"uri": f"test://{alias}.mcp/pages/7"})["result"]["contents"]
        assert (read["uri"], read["text"]) == (f"test://{alias}.mcp/pages/7", f"page 7 of {name}")
    templates = {one["uriTemplate"] for one in agent.ask("resources/templates/list")["result"]["resourceTemplates"]}
    assert "test://web.mcp/pages/{number}" in templates
    for uri in ("test://page", "test://nobody.mcp/page", "test://web.mcp/nothing"):
        error = agent.ask("resources/read", {"uri": uri})["error"]
        assert (error["code"], error["data"]["uri"]) == (-32602 if agent.modern else -32002, uri)
    linked = agent.call("all__get-resource-links", count=2)["result"]["content"]
    links = [block["uri"] for block in linked if block["type"] == "resource_link"]
    assert len(links) == 2
    assert all("://all.mcp/" in uri for uri in links)
    (read,) = agent.ask("resources/read", {"uri": links[0]})["result"]["contents"]
    assert read["uri"] == links[0]


def test_prompts_and_completion_go_to_the_member_that_has_them(agent: Both) -> None:
    prompts = {one["name"] for one in agent.ask("prompts/list")["result"]["prompts"]}
    assert {"web__ask", "wiki__ask"} <= prompts
    told = agent.ask("prompts/get", {"name": "wiki__ask", "arguments": {"topic": "tea"}})["result"]
    assert told["messages"][0]["content"]["text"] == "Wiki about tea"
    ref = {"type": "ref/prompt", "name": "ours__summarise"}
    assert isinstance(
        agent.ask("completion/complete", {"ref": ref, "argument": {"name": "note", "value": ""}})["result"][
            "completion"
        ]["values"],
        list,
    )
    assert agent.ask("prompts/get", {"name": "ask"})["error"]["code"] == -32602


def test_what_a_bundle_hides_is_refused_when_called_and_a_token_reaches_its_own_servers_only(
    servers: Product, token: str
) -> None:
    bundle(servers, "few", ("web", "web", {"tools": ["*", "!search"], "resources": ["test://page"]}), ("wiki", "wiki"))
    agent = Both(servers.agent(token, "few"), modern=True)
    names = {tool["name"] for tool in agent.ask("tools/list")["result"]["tools"]}
    assert "web__search" not in names
    assert "wiki__search" in names
    before = len(servers.calls())
    assert agent.call("web__search", query="x")["error"]["code"] == -32602
    for uri in ("test://web.mcp/pages/7", "test://web.mcp/nowhere"):
        assert agent.ask("resources/read", {"uri": uri})["error"]["code"] == -32602
    one = Both(servers.agent(servers.token(servers=("wiki",), label="one"), "few"), modern=True)
    assert {tool["name"].partition("__")[0] for tool in one.ask("tools/list")["result"]["tools"]} == {"wiki"}
    assert one.call("web__odd", query="x")["error"]["code"] == -32602
    none = servers.agent(servers.token(servers=("ours",), label="none"), "few")
    assert none.ask_modern("tools/list").status_code == 404
    assert len(servers.calls()) == before


def test_an_alias_that_changes_renames_and_its_old_names_mean_nothing_else(servers: Product, token: str) -> None:
    bundle(servers, "moving", ("web", "first"))
    agent = Both(servers.agent(token, "moving"), modern=True)
    assert "first__search" in {tool["name"] for tool in agent.ask("tools/list")["result"]["tools"]}
    bundle(servers, "moving", ("web", "second"))
    assert "second__search" in {tool["name"] for tool in agent.ask("tools/list")["result"]["tools"]}
    error = agent.call("first__search", query="x")["error"]
    assert (error["code"], "second__search" in error["message"]) == (-32602, True)
    with pytest.raises(Exception, match="it belonged to Web"):
        bundle(servers, "moving", ("web", "second"), ("wiki", "first"))


def test_a_member_that_is_down_empties_nothing_and_all_down_is_an_error(servers: Product, token: str) -> None:
    bundle(servers, "half", ("broken", "bad"), ("web", "web"))
    agent = Both(servers.agent(token, "half"), modern=True)
    result = agent.ask("tools/list")["result"]
    assert {tool["name"].partition("__")[0] for tool in result["tools"]} == {"web"}
    assert (result["ttlMs"], result["_meta"]["mcpadmin/members"]["web"]) == (0, "ok")
    assert result["_meta"]["mcpadmin/members"]["bad"] != "ok"
    bundle(servers, "none", ("broken", "bad"))
    answer = servers.agent(token, "none").ask_modern("tools/list")
    assert answer.status_code == 503
    assert "Broken" in answer.json()["error"]["message"]


def test_a_list_is_announced_only_when_this_bundle_changes_it(servers: Product, token: str) -> None:
    bundle(servers, "told", ("web", "web"), ("wiki", "wiki"))
    agent = servers.agent(token, "told")
    assert agent.ask_modern("tools/list").status_code == 200
    body, headers = agent.modern(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
    )
    with standing(agent, body, **headers) as heard:
        eventually(lambda: len(heard) >= 1)
        bundle(servers, "told", ("web", "web", {"tools": ["search"]}), ("wiki", "wiki"))
        eventually(lambda: any("tools/list_changed" in str(one) for one in heard), seconds=15)
        assert not any("prompts/list_changed" in str(one) for one in heard)


def test_updates_of_a_resource_carry_the_uri_of_the_bundle(servers: Product, token: str) -> None:
    bundle(servers, "followed", ("ours", "mine"), ("legacy", "old"))
    agent = servers.agent(token, "followed")
    assert agent.initialize().status_code == 200
    listed = [one["uri"] for one in agent.ask("resources/list")["result"]["resources"]]
    uri = next(one for one in listed if "mine.mcp/" in one and "clock" in one)
    with standing(agent) as heard:
        assert "result" in agent.ask("resources/subscribe", {"uri": uri})
        eventually(lambda: any(one and one.get("params", {}).get("uri") == uri for one in heard), seconds=30)
    assert agent.ask("resources/unsubscribe", {"uri": uri})["result"] == {}


def test_search_mode_lists_two_tools_and_what_is_pinned_and_calls_the_rest(
    servers: Product, agent: Both, token: str
) -> None:
    bundle(servers, "large", ("every", "all"), ("web", "web"), ("ours", "ours"), listing="search", pinned=("web__*",))
    found = Both(servers.agent(token, "large"), modern=agent.modern)
    names = [tool["name"] for tool in found.ask("tools/list")["result"]["tools"]]
    assert names[:3] == ["find_tool", "call_tool", "web__search"]
    assert not any(name.startswith("all__") for name in names)
    told = json.loads(text(found.call("find_tool", query="echo a message back")))["tools"]
    assert told[0]["name"] == "all__echo"
    assert "message" in told[0]["inputSchema"]["properties"]
    before = len(servers.calls())
    assert "hello" in text(found.call("call_tool", name="all__echo", arguments={"message": "hello"}))
    assert len(servers.calls()) == before + 1
    wrong = found.call("call_tool", name="all__echo", arguments={"message": 7})["result"]
    assert wrong["isError"] is True
    assert found.call("call_tool", name="all__nothing", arguments={})["error"]["code"] == -32602
    assert found.call("find_tool")["result"]["isError"] is True


SHORT = ("sdk1", "ts2-2026-07-28")


@pytest.mark.parametrize(
    "face", [pytest.param(face, marks=[pytest.mark.long] * (face not in SHORT)) for face in test_clients.FACES]
)
def test_a_client_that_is_not_ours_does_everything_through_a_bundle(servers: Product, face: str) -> None:
    bundle(servers, "clients", ("modern", "new"), ("web", "web"), ("wiki", "wiki"), ("asking-legacy", "asks"))
    label = f"bundle-{face}"
    words = (servers.url("clients"), servers.url("clients"), servers.token(label=label), "new__", "asks__")
    done = subprocess.run([*agent_client(face), *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-6_000:]
    found = json.loads(done.stdout.split("FOUND ", 1)[1])
    assert {"new__echo", "web__search", "wiki__search"} <= set(found["tools"])
    assert found["echo"] == "from an agent"
    assert found["progress"] in test_clients.progress_of(face)
    assert all(found["read"])
    assert found["completed"] is True
    assert "count=3" in found["asked"]


def test_a_cursor_of_one_bundle_is_none_of_another_and_the_version_is_named(servers: Product, token: str) -> None:
    agent = servers.agent(token, "team")
    assert agent.ask_modern("tools/list", {"cursor": "x"}).json()["error"]["code"] == -32602
    assert agent.ask_modern("server/discover").json()["result"]["supportedVersions"] == [VERSION]


def test_a_tool_is_listed_and_called_as_the_bundle_describes_it(servers: Product, token: str) -> None:
    said = {"search_notes": ("Finds notes. Use it first.", ()), "add": ("", ("b",)), "greet": ("", ("language",))}
    bundle(servers, "told", ("ours", "ours", {"overrides": said}))
    before = len(servers.calls(target="greet"))
    for agent in (Both(servers.agent(token, "told"), modern=modern) for modern in (False, True)):
        tools = {tool["name"]: tool for tool in agent.ask("tools/list")["result"]["tools"]}
        assert tools["ours__search_notes"]["description"] == "Finds notes. Use it first."
        assert set(tools["ours__add"]["inputSchema"]["properties"]) == {"a", "b"}  # the server requires both
        assert set(tools["ours__greet"]["inputSchema"]["properties"]) == {"name"}
        refused = agent.call("ours__greet", name="Ann", language="german")
        assert refused["result"]["isError"] is True
        assert text(refused) == "ours__greet has no parameter language. It was not called."
        assert "Ann" in text(agent.call("ours__greet", name="Ann"))
    assert len(servers.calls(target="greet")) == before + 2
