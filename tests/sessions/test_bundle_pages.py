"""*Bundles* and *Use it from…*: what the pages show, refuse and record."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.agents import bundle_files, policies, policy_changes
from servers.agents.configurations import configurations
from servers.agents.policies import Rule
from servers.audit.record import Actor
from servers.bundles import changing, exposed, names
from servers.bundles.changing import BundleInput, Membership
from servers.bundles.exposed import Renamed
from servers.bundles.overrides import Override
from servers.definitions.versions import store_listing
from servers.enums import AgentScope, AuditAction, DefinitionKind, PolicyEffect, PolicyKind, SignsInAs
from servers.models import AgentPolicy, AgentToken, AuditEvent, Bundle, Definition, ExposedName, Server
from servers.registration import registering
from sessions.agents.catalog import bundle_contents
from sessions.models import McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_session
from tests.sessions.test_adding_pages import Fields

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ann(db: None) -> Any:
    return person("ann", "view_server", "change_server", "call_tool", "view_auditevent", "add_server")


@pytest.fixture
def signed_in(ann: Any) -> Client:
    client = Client()
    client.force_login(ann)
    return client


def server(slug: str, *tools: str) -> Server:
    session = make_session(slug)
    listing = [{"name": name, "description": "Does it.", "inputSchema": {"type": "object"}} for name in tools]
    store_listing(session.server, DefinitionKind.TOOL, listing, session.state_since)
    return session.server


def make(ann: Any, *members: Membership, slug: str = "team", **more: Any) -> Bundle:
    return changing.create(Actor.of_user(ann), ann, BundleInput("Team", members, slug, **more))


def edit(bundle: Bundle, *members: tuple[Server, str], **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"name": bundle.name, "slug": bundle.slug, "listing": "all", "version": bundle.version}
    for position, (one, alias) in enumerate(members):
        fields = {"alias": alias, "position": position, "tools": "*", "resources": "*", "prompts": "*"}
        given |= {f"member-{one.uid}-{name}": value for name, value in fields.items()}
    return given | more


def errors(answer: Any) -> str:
    text = re.sub(r"<[^>]+>", " ", answer.content.decode())
    return re.sub(r"\s+", " ", text)


def test_a_bundle_is_made_from_servers_with_aliases_proposed_and_its_changes_are_audited(signed_in: Client) -> None:
    web, wiki = server("web", "search", "odd.name"), server("wiki", "search")
    made = signed_in.post("/agents/bundles/add/", {"name": "Team", "listing": "all", "add": [web.uid, wiki.uid]})
    assert made.headers["location"] == "/agents/bundles/team/"
    shown = signed_in.get("/agents/bundles/team/?client=work").content.decode()
    assert "mcp__work__web__search" in shown
    assert "mcp__work__wiki__search" in shown
    assert re.search(r"web__odd_name_[a-z2-7]{6}", shown)
    assert "Has characters that models do not accept." in shown
    bundle = Bundle.objects.get()
    assert signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "net"), (wiki, "wiki"))).status_code == 302
    former = Renamed("web__search", "net__search", (str(web.uid), "search"))
    assert exposed.find(bundle.pk, DefinitionKind.TOOL, "web__search") == former
    changed = AuditEvent.objects.get(action=AuditAction.BUNDLE_CHANGE)
    members = json.loads(changed.body)["details"]["changed"]["members"]
    assert [[one["alias"] for one in members[side]] for side in ("from", "to")] == [["web", "wiki"], ["net", "wiki"]]
    assert "Bundle changed" in signed_in.get("/agents/bundles/team/").content.decode()


def test_who_read_the_members_before_an_alias_changed_gives_no_name_under_the_old_one(ann: Any) -> None:
    """As an agent's list does that another process answers at that moment."""
    web, wiki = server("web", "search"), server("wiki", "search")
    bundle, kind = make(ann, Membership(web, "web"), Membership(wiki, "wiki")), DefinitionKind.TOOL
    before = {(str(one.uid), "search"): one.slug for one in (web, wiki)}
    exposed.assign(bundle.pk, kind, before)
    changing.change(
        Actor.of_user(ann), ann, bundle, BundleInput("Team", [Membership(web, "net")], "team"), bundle.version
    )
    exposed.assign(bundle.pk, kind, before)
    assert exposed.known(bundle.pk, kind) == {}
    exposed.assign(bundle.pk, kind, {(str(web.uid), "search"): "net"})
    assert exposed.known(bundle.pk, kind) == {(str(web.uid), "search"): "net__search"}


def test_a_server_that_has_not_connected_yet_is_distinguished_from_one_without_tools(
    signed_in: Client, ann: Any
) -> None:
    new, bare = make_session("new"), make_session("bare")
    McpSession.objects.filter(pk=new.pk).update(revision="")
    McpSession.objects.filter(pk=bare.pk).update(revision="2025-11-25")
    make(ann, Membership(new.server, "new"), Membership(bare.server, "bare"))
    shown = errors(signed_in.get("/agents/bundles/team/"))
    assert "0 tools, 0 tokens . Servers that have not connected yet are not counted." in shown.replace(
        "tokens.", "tokens ."
    )
    assert shown.count("This server's lists are not loaded yet.") == shown.count("This server has no tools") == 1
    for alias, words in (("new", "Connect it, then choose."), ("bare", "This server has no tools")):
        page = signed_in.get(f"/agents/bundles/team/members/{alias}/").content.decode()
        assert words in page
        assert "data-primary" not in page  # there is nothing to save
    assert "Choose what each server offers" in errors(signed_in.get("/agents/bundles/team/policy/"))
    assert "the server offers nothing, or its lists" in errors(signed_in.get("/servers/bare/agents/"))
    McpSession.objects.filter(pk=new.pk).update(revision="2025-11-25")
    assert "not connected yet" not in errors(signed_in.get("/agents/bundles/team/"))


def test_where_a_bundle_is_used_from_leads_back_to_the_bundles(signed_in: Client, ann: Any) -> None:
    make(ann, Membership(server("web", "search"), "web"))
    for page, trail in (("team", "Agents Bundles Team"), ("web", "Agents Web")):
        for path, here in ((f"/agents/use/{page}/", "Use it from…"), (f"/agents/model/{page}/", "As models see it")):
            crumb = signed_in.get(path).content.decode().partition('aria-label="Breadcrumb">')[2].partition("</nav>")[0]
            assert re.sub(r"<svg.*?</svg>|<[^>]+>", " ", crumb, flags=re.DOTALL).split() == f"{trail} {here}".split()


def test_conflicts_are_named_and_nothing_is_saved(signed_in: Client, ann: Any) -> None:
    web, wiki = server("web", "search"), server("wiki", "search")
    bundle = make(ann, Membership(web, "mail"), Membership(wiki, "wiki"))
    for members, words in (
        ([(web, "mail"), (wiki, "mail")], "is also the alias of Web"),
        ([(web, "mail"), (wiki, "mall")], "looks like mail, the alias of Web"),
        ([(web, "mail"), (wiki, "Bad_")], "use 2 to 12 lowercase letters"),
        ([(web, "wiki"), (wiki, "other")], "it belonged to Wiki"),
    ):
        answer = signed_in.post("/agents/bundles/team/edit/", edit(bundle, *members))
        assert answer.status_code == 422
        assert words in errors(answer)
    stale = signed_in.post(
        "/agents/bundles/team/edit/", edit(bundle, (web, "mail"), (wiki, "wiki"), version=bundle.version - 1)
    )
    assert "Someone else has changed this bundle" in errors(stale)
    assert [row.alias for row in bundle.members.all()] == ["mail", "wiki"]


def test_servers_and_bundles_share_their_short_names(signed_in: Client, ann: Any) -> None:
    web = server("web", "search")
    answer = signed_in.post("/agents/bundles/add/", {"name": "X", "slug": "web", "listing": "all", "add": [web.uid]})
    assert "The server Web already uses this short name" in errors(answer)
    make(ann, Membership(web, "web"))
    form = {"name": "Other", "slug": "team", "transport": "streamable_http", "url": "https://mcp.example.com/mcp"}
    assert "The bundle Team already uses this short name" in errors(signed_in.post("/servers/add/", form))
    web.slug = "team"
    with pytest.raises(ValidationError, match="short name"):
        changing.check(BundleInput("Y", [Membership(web, "web")]), "team")


def test_a_tool_whose_name_no_line_of_a_form_holds_stays_hidden_when_something_else_is_edited(
    signed_in: Client, ann: Any
) -> None:
    web, patterns = server("web", "drop ", "a\nb"), ["*", "!drop ", "!a\nb"]
    bundle = make(ann, Membership(web, "web", tools=patterns))
    page = signed_in.get("/agents/bundles/team/edit/").content.decode()
    assert "!a" not in page
    assert signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "web"))).status_code == 302
    assert bundle.members.get(retired_at=None).tools == patterns


def test_what_is_not_ticked_is_hidden_and_more_than_128_tools_need_a_confirmation(signed_in: Client, ann: Any) -> None:
    web = server("web", *(f"t{number}" for number in range(130)))
    given = {"name": "Large", "listing": "all", "add": [web.uid]}
    refused = signed_in.post("/agents/bundles/add/", given)
    assert "This would offer 130 tools" in errors(refused)
    assert not Bundle.objects.exists()
    assert signed_in.post("/agents/bundles/add/", given | {"listing": "search"}).status_code == 302
    assert signed_in.post("/agents/bundles/add/", given | {"name": "Sure", "confirm": "on"}).status_code == 302
    assert "More than 40 tools" in errors(signed_in.get("/agents/bundles/sure/"))
    bundle = Bundle.objects.get(slug="sure")
    ticked = {"version": bundle.version, "tools": [f"t{number}" for number in range(5)]}
    assert signed_in.post("/agents/bundles/sure/members/web/", ticked).status_code == 302
    assert re.search(r"\b5 tools, \d+ tokens", errors(signed_in.get("/agents/bundles/sure/")))
    assert ExposedName.objects.filter(bundle=bundle).count() == 130


def test_an_exported_bundle_is_the_same_when_it_is_imported_and_has_no_secret(signed_in: Client, ann: Any) -> None:
    web = server("web", "search")
    bundle = make(ann, Membership(web, "web", ("*", "!drop_*")), instructions="Be kind.", pinned=("web__*",))
    text = signed_in.post("/agents/bundles/team/export/").content.decode()
    assert text == bundle_files.written(bundle)
    assert str(web.uid) not in text
    taken = signed_in.post("/agents/bundles/import/", {"text": text})
    assert "The bundle Team already uses this short name" in errors(taken)
    assert signed_in.post("/agents/bundles/import/", {"text": text.replace('"team"', '"copy"')}).status_code == 302
    assert bundle_files.written(Bundle.objects.get(slug="copy")).replace('"copy"', '"team"') == text
    for wrong, words in (
        ("{", "not JSON"),
        ("{}", "not an exported bundle"),
        (text.replace('"web"', '"gone"'), "not registered here: gone"),
    ):
        assert words in errors(signed_in.post("/agents/bundles/import/", {"text": wrong}))


def test_a_deleted_bundle_can_be_restored(signed_in: Client, ann: Any) -> None:
    bundle = make(ann, Membership(server("web", "search"), "web"))
    assert signed_in.post("/agents/bundles/team/delete/").status_code == 302
    assert signed_in.get("/agents/bundles/team/").status_code == 404
    assert "Recently removed" in signed_in.get("/agents/bundles/").content.decode()
    assert signed_in.post(f"/agents/bundles/{bundle.uid}/restore/").status_code == 302
    assert signed_in.get("/agents/bundles/team/").status_code == 200


def test_every_deleted_bundle_is_listed_for_restoring(signed_in: Client, ann: Any) -> None:
    bundle = make(ann, Membership(server("web", "search"), "web"))
    for number in range(25):
        bundle.pk, bundle.uid, bundle.slug, bundle.deleted_at = None, uuid4(), f"old{number}", timezone.now()
        bundle.save(force_insert=True)
    page = signed_in.get("/agents/bundles/").content.decode()
    assert page.count("/restore/") == 25
    assert "Only the" not in page


def test_who_may_only_look_changes_nothing(ann: Any) -> None:
    bundle = make(ann, Membership(server("web", "search"), "web"))
    client = Client()
    client.force_login(person("vera", "view_server"))
    assert "Edit" not in errors(client.get("/agents/bundles/team/"))
    for path in ("add/", "import/", "team/edit/", "team/delete/", "team/members/web/", f"{bundle.uid}/restore/"):
        assert client.post(f"/agents/bundles/{path}").status_code == 403
    assert client.get("/agents/use/team/").status_code == 403


@pytest.mark.parametrize("sign_in", [SignsInAs.SHARED, SignsInAs.PERSONAL])
@pytest.mark.parametrize("path", ["/agents/bundles/", "/agents/bundles/team/"])
def test_one_server_and_many_cost_the_same_number_of_queries(
    signed_in: Client, ann: Any, path: str, sign_in: SignsInAs
) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert signed_in.get(path).status_code == 200
        return len(queries)

    bundle = make(ann, Membership(server("one", "a"), "one"))
    Server.objects.update(signs_in_as=sign_in)
    signed_in.get(path)
    before = count()
    members = [
        Membership(Server.objects.get(slug="one"), "one"),
        *(Membership(server(f"s{n}", "a", "b"), f"m{n}x") for n in "abc"),
    ]
    Server.objects.update(signs_in_as=sign_in)
    changing.change(Actor.of_user(ann), ann, bundle, BundleInput("Team", members, "team"), bundle.version)
    assert count() == before


def test_a_token_is_made_beside_the_configurations_for_this_endpoint_alone(signed_in: Client, ann: Any) -> None:
    web, other = server("web", "search"), server("other", "search")
    make(ann, Membership(web, "web"), Membership(other, "other"))
    assert "YOUR_TOKEN" in signed_in.get("/agents/use/team/").content.decode()
    shown = signed_in.post("/agents/use/team/", {"name": "laptop", "days": "7"})
    assert shown.headers["cache-control"].startswith("max-age=0, no-cache, no-store")
    text = shown.content.decode()
    (token,) = set(re.findall(r"mca_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", text))
    assert text.count(token) == 8
    row = AgentToken.objects.get()
    assert {one.slug for one in row.servers.all()} == {"web", "other"}
    assert "mcp:call:destructive" not in row.scopes
    signed_in.post("/agents/use/web/", {"name": "one", "days": "7"})
    assert [one.slug for one in AgentToken.objects.order_by("-pk")[0].servers.all()] == ["web"]


@pytest.mark.parametrize("path", ["team", "web"])
def test_no_token_is_made_for_another_endpoint_that_got_the_short_name(signed_in: Client, ann: Any, path: str) -> None:
    web, other = server("web", "search"), server("other", "search")
    bundle = make(ann, Membership(web, "web"))
    fields = Fields(signed_in.get(f"/agents/use/{path}/").content.decode()).found
    if path == "team":
        Bundle.objects.filter(pk=bundle.pk).update(slug="team-old")
        Server.objects.filter(pk=other.pk).update(slug="team", name="Team of others")
    else:
        Server.objects.filter(pk=web.pk).update(slug="web-old")
        Server.objects.filter(pk=other.pk).update(slug="web", name="Web of others")
    shown = signed_in.post(f"/agents/use/{path}/", fields, follow=True).content.decode()
    assert "another one now has its short name. No token was created." in shown
    assert not AgentToken.objects.exists()
    assert f"Client of {path.title()} of others" in shown
    signed_in.post(f"/agents/use/{path}/", Fields(shown).found)
    assert [one.pk for one in AgentToken.objects.get().servers.all()] == [other.pk]


def test_the_page_names_every_scope_of_the_token_that_it_creates(signed_in: Client) -> None:
    server("web", "search")
    shown = errors(signed_in.get("/agents/use/web/"))
    signed_in.post("/agents/use/web/", {"name": "laptop", "days": "7"})
    assert [one for one in AgentToken.objects.get().scopes if AgentScope(one).label not in shown] == []


def test_configurations_are_what_each_client_reads() -> None:
    found = {one.key: one.text for one in configurations("team", "http://localhost:8000/mcp/team", "mca_x")}
    assert json.loads(found["cursor"])["mcpServers"]["team"]["headers"] == {"Authorization": "Bearer mca_x"}
    assert json.loads(found["vscode"])["servers"]["team"]["type"] == "http"
    assert json.loads(found["windsurf"])["mcpServers"]["team"]["serverUrl"].endswith("/mcp/team")
    desktop = json.loads(found["claude-desktop"])["mcpServers"]["team"]
    assert "--allow-http" in desktop["args"]
    assert "mca_x" not in json.dumps(desktop["args"])
    assert "Bearer mca_x" in found["codex"]
    assert found["curl"].startswith("curl ")


def test_models_see_what_the_page_shows_and_a_tool_can_be_described_for_them(signed_in: Client, ann: Any) -> None:
    web = server("web", "search", "index")
    schema = {"type": "object", "properties": {"query": {"type": "string"}, "debug": {}}, "required": ["query"]}
    listing = [{"name": "search", "description": "Searches.", "inputSchema": schema}]
    store_listing(web, DefinitionKind.TOOL, listing, web.sessions.get().state_since)
    bundle = make(ann, Membership(web, "web"), instructions="Use it well.")
    assert "1 tool: see why" in errors(signed_in.get("/agents/model/team/"))  # the change breaks what it was
    Definition.objects.update(approved_digest="")
    before = errors(signed_in.get("/agents/model/team/"))
    for words in (
        "web__search",
        "Use it well.",
        "A very short description.",
        "No description for the parameters query, debug.",
    ):
        assert words in before
    assert "Changed in this bundle" not in before
    assert not ExposedName.objects.exists()  # to look changes nothing
    path = "/agents/bundles/team/members/web/tool/?tool=search"
    form = errors(signed_in.get(path))
    assert "Required by the server, so they can't be hidden: query" in form
    given = {"description": "Finds pages. Use it first.", "hidden": ["debug"], "version": bundle.version}
    assert signed_in.post(path, given).headers["location"] == "/agents/model/team/"
    after = errors(signed_in.get("/agents/model/team/"))
    assert "Changed in this bundle" in after
    assert "Finds pages. Use it first." in after
    assert "&quot;debug&quot;" not in after
    changed = json.loads(AuditEvent.objects.get(action=AuditAction.BUNDLE_CHANGE).body)["details"]["changed"]["members"]
    override = {"description": "Finds pages. Use it first.", "hidden": ["debug"]}
    assert [one["overrides"] for side in ("from", "to") for one in changed[side]] == [{}, {"search": override}]
    assert "Changed for models" in signed_in.get("/agents/bundles/team/").content.decode()
    bundle.refresh_from_db()
    assert signed_in.post(path, given | {"version": bundle.version - 1}).status_code == 422
    assert signed_in.post(path, given | {"version": bundle.version, "hidden": ["query"]}).status_code == 422
    # what other forms change leaves it as it is, and an export brings it along
    assert signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "web"))).status_code == 302
    text = bundle_files.export(Actor.of_user(ann), bundle)
    bundle.members.all().delete()
    bundle.names.all().delete()
    bundle.delete()
    made = bundle_files.import_bundle(Actor.of_user(ann), ann, text)
    assert made.members.get().overrides == {"search": override}


def test_an_import_keeps_the_policy_of_the_exported_bundle(signed_in: Client, ann: Any) -> None:
    bundle = make(ann, Membership(server("web", "search"), "web"))
    assert "policy" not in bundle_files.written(bundle)
    actor = Actor.of_user(ann)
    policy_changes.change(actor, ann, bundle, {"otherwise": PolicyEffect.ASK, "equal_calls": 3, "asks_to_repeat": True})
    policy_changes.add_rule(actor, ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, "web__drop_*", 5))
    text = bundle_files.written(bundle)
    assert signed_in.post("/agents/bundles/import/", {"text": text.replace('"team"', '"copy"')}).status_code == 302
    copy = Bundle.objects.get(slug="copy")
    assert bundle_files.written(copy).replace('"copy"', '"team"') == text
    assert replace(policies.policy_of(copy), of="") == replace(policies.policy_of(bundle), of="")
    told = [event.body for event in AuditEvent.objects.filter(action=AuditAction.AGENT_POLICY_CHANGE).order_by("seq")]
    assert sum("deny tool web__drop_*" in body for body in told) == 2
    value = json.loads(text.replace('"team"', '"third"'))
    for wrong, words in (
        ([], "must be an object"),
        ({"otherwise": "maybe"}, "otherwise"),
        ({"equal_calls": True}, "integer"),
        ({"asks_to_repeat": 1}, "must be true or false"),
        ({"requests_per_second": 0}, "requests_per_second"),
        ({"trusts_annotations": "yes"}, "is unknown"),
        ({"rules": [{"effect": "deny", "kind": "tool"}]}, "pattern: This field is required"),
        ({"rules": [{"effect": "deny", "kind": "tool", "pattern": ["x"]}]}, "must be a string"),
        ({"rules": [{"effect": "deny", "kind": "tool", "pattern": "x" * 301}]}, "pattern"),
        ({"rules": value["policy"]["rules"] * 2}, "There is already a rule"),
    ):
        taken = signed_in.post(
            "/agents/bundles/import/",
            {
                "text": json.dumps(
                    value | {"policy": {**value["policy"], **wrong} if isinstance(wrong, dict) else wrong}
                )
            },
        )
        assert words in errors(taken), wrong
    assert not Bundle.objects.filter(slug="third").exists()


def test_an_imported_policy_means_the_same_tools_where_altered_names_differ(signed_in: Client, ann: Any) -> None:
    """The mark of an altered name depends on a server's key, which another installation does not share."""
    long, twins = "drop_" + "x" * 60, ("Find", "find")
    web = server("web", "files.delete", long, *twins)
    bundle, tools = make(ann, Membership(web, "web")), DefinitionKind.TOOL
    bundle_contents.assign_names(ann, bundle)
    before = {original: name for (_, original), name in exposed.known(bundle.pk, tools).items()}
    assert before["find"] != "web__find"
    wanted = changing.with_member(bundle, "web")
    changing.change(Actor.of_user(ann), ann, bundle, replace(wanted, pinned=[before[long]]), bundle.version)
    for original in ("files.delete", "Find"):
        policy_changes.add_rule(
            Actor.of_user(ann), ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, before[original])
        )
    policy_changes.add_rule(Actor.of_user(ann), ann, bundle, Rule(PolicyEffect.ASK, PolicyKind.TOOL, before["find"]))
    bundle.refresh_from_db()
    ExposedName.objects.filter(bundle=bundle, original="files.delete").update(
        retired_at=timezone.now()
    )  # absent for a day
    text = bundle_files.written(bundle)
    policy_changes.add_rule(
        Actor.of_user(ann), ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, f"*{before[long][-3:]}")
    )
    unclear = bundle_files.written(bundle)
    bundle.delete()
    Server.objects.filter(pk=web.pk).update(uid=uuid4())
    Definition.objects.filter(key="Find").update(position=9)  # its twin is the first here
    assert "would not match" in errors(signed_in.post("/agents/bundles/import/", {"text": unclear}))
    assert signed_in.post("/agents/bundles/import/", {"text": text}).status_code == 302
    made = Bundle.objects.get(slug="team")
    now = {original: name for (_, original), name in exposed.known(made.pk, tools).items()}
    assert now.keys() == before.keys()
    assert now["files.delete"] != before["files.delete"]
    verdicts = {
        original: policies.policy_of(made).verdict(PolicyKind.TOOL, name).effect for original, name in now.items()
    }
    assert verdicts == {
        "files.delete": PolicyEffect.DENY,
        "Find": PolicyEffect.DENY,
        "find": PolicyEffect.ASK,
        long: PolicyEffect.ALLOW,
    }
    assert made.pinned == [now[long]]


@pytest.mark.parametrize("odd", ["a\0b", "a\ud800b"])
@pytest.mark.parametrize("place", ["name", "instructions", "pinned", "server"])
def test_an_import_that_no_database_can_store_is_refused_in_words(
    signed_in: Client, ann: Any, place: str, odd: str
) -> None:
    value = json.loads(bundle_files.written(make(ann, Membership(server("web", "search"), "web"))))
    if place == "server":
        value["members"][0]["server"] = odd
    else:
        value[place] = [odd] if place == "pinned" else odd
    answer = signed_in.post("/agents/bundles/import/", {"text": json.dumps(value | {"short_name": "copy"})})
    assert "contains a NUL character or an unpaired surrogate" in errors(answer)
    assert not Bundle.objects.filter(slug="copy").exists()


def test_why_a_tool_is_not_listed_is_where_its_page_leads_to(signed_in: Client, ann: Any) -> None:
    web = server("web", "search")
    broken = [{"name": "odd", "inputSchema": {"type": "array"}}, {"name": "search", "inputSchema": {"type": "object"}}]
    store_listing(web, DefinitionKind.TOOL, broken, web.sessions.get().state_since + timedelta(seconds=5))
    make(ann, Membership(web, "web"))
    assert "1 tool: see why" in errors(signed_in.get("/agents/model/team/"))
    page = errors(signed_in.get("/agents/bundles/team/policy/"))
    assert re.search(r"web__odd Tool Deny The input schema does not describe an object", page)


def test_the_list_of_a_servers_own_endpoint_is_the_servers(signed_in: Client) -> None:
    server("web", "search")
    shown = errors(signed_in.get("/agents/model/web/?advice=1"))
    assert "web as models see it" in shown.replace("Web", "web")
    assert "A very short description." in shown
    assert signed_in.get("/agents/model/nothing/").status_code == 404
    assert signed_in.get("/agents/bundles/nothing/members/web/tool/?tool=search").status_code == 404


def test_a_definition_too_long_for_the_page_is_said_to_be_cut_and_not_offered_as_its_json(signed_in: Client) -> None:
    web = server("web", "search", "index")
    schema = {"type": "object", "properties": {f"field{n}": {"description": "x" * 100} for n in range(2_000)}}
    listing = [
        {"name": name, "inputSchema": given} for name, given in (("search", schema), ("index", {"type": "object"}))
    ]
    store_listing(web, DefinitionKind.TOOL, listing, web.sessions.get().state_since)
    Definition.objects.update(approved_digest="")
    shown = signed_in.get("/agents/model/web/").content.decode()
    assert shown.count("these are the first 200,000 characters") == 1
    assert "Copy JSON of index" in shown
    assert "Copy JSON of search" not in shown


def test_a_choice_that_cannot_be_stored_is_refused_in_words_with_its_ticks(signed_in: Client, ann: Any) -> None:
    bundle = make(ann, Membership(server("web", *(f"t{number}" for number in range(510))), "web"))
    data = {"version": bundle.version, "tools": ["t1", "t2"], "resources": [], "prompts": []}
    answer = signed_in.post("/agents/bundles/team/members/web/", data)
    assert answer.status_code == 422
    assert "at most 500 patterns" in errors(answer)
    assert re.findall(r'value="(\w+)"\s+checked', answer.content.decode()) == ["t1", "t2"]
    assert bundle.members.get(retired_at=None).tools == ["*"]


def test_a_choice_concerns_only_what_its_page_showed(signed_in: Client, ann: Any) -> None:
    """A tool that the server adds meanwhile is offered, as the page says."""
    web = server("web", "a", "b")
    bundle = make(ann, Membership(web, "web"))
    page = signed_in.get("/agents/bundles/team/members/web/")
    shown = re.search(r'name="shown" value="([^"]+)"', page.content.decode())
    assert shown is not None
    listing = [{"name": name, "inputSchema": {"type": "object"}} for name in ("a", "b", "new")]
    store_listing(web, DefinitionKind.TOOL, listing, web.sessions.get().state_since + timedelta(seconds=5))
    data = {"version": bundle.version, "tools": ["a"], "shown": shown[1]}
    assert signed_in.post("/agents/bundles/team/members/web/", data).status_code == 302
    assert bundle.members.get(retired_at=None).tools == ["*", "!b"]


def test_a_choice_of_more_than_128_tools_needs_a_confirmation(signed_in: Client, ann: Any) -> None:
    tools = [f"t{number}" for number in range(130)]
    bundle = make(ann, Membership(server("web", *tools), "web", tools=["t1"]))
    data = {"version": bundle.version, "tools": tools}
    answer = signed_in.post("/agents/bundles/team/members/web/", data)
    assert answer.status_code == 422
    assert "This would offer 130 tools" in errors(answer)
    assert bundle.members.get(retired_at=None).tools == ["t1"]
    answer = signed_in.post("/agents/bundles/team/members/web/", data | {"confirm": "on"}, follow=True)
    assert "130 tools: Cursor uses only the first 40" in errors(answer)


def test_a_confirmed_choice_does_not_undo_what_another_person_chose(signed_in: Client, ann: Any) -> None:
    tools = [f"t{number}" for number in range(130)]
    bundle = make(ann, Membership(server("web", *tools), "web", tools=["t1"]))
    data = {"version": bundle.version, "tools": tools}
    wanted = changing.with_member(bundle, "web", tools=("t2",))
    changing.change(Actor.of_user(ann), ann, bundle, wanted, bundle.version)
    answer = signed_in.post("/agents/bundles/team/members/web/", data, follow=True)
    assert "Someone else has changed this bundle" in errors(answer)
    assert bundle.members.get(retired_at=None).tools == ["t2"]


def test_what_a_choice_saved_the_form_saves_too(signed_in: Client, ann: Any) -> None:
    web, uris = server("web", "search"), [f"test://{number}/{'x' * 120}" for number in range(450)]
    store_listing(web, DefinitionKind.RESOURCE, [{"uri": uri, "name": uri} for uri in uris], timezone.now())
    bundle = make(ann, Membership(web, "web"), listing="search", pinned=[f"web__{n}_{'x' * 120}" for n in range(450)])
    data = {"version": bundle.version, "tools": ["search"], "resources": []}
    assert signed_in.post("/agents/bundles/team/members/web/", data).status_code == 302
    bundle.refresh_from_db()
    patterns = {f"member-{web.uid}-resources": "\r\n".join(bundle.members.get(retired_at=None).resources)}
    given = edit(bundle, (web, "web"), name="Other", pinned="\r\n".join(bundle.pinned), **patterns)
    assert signed_in.post("/agents/bundles/team/edit/", given).status_code == 302
    bundle.refresh_from_db()
    with pytest.raises(ValidationError, match="At most 500 patterns"):
        changing.check(replace(changing.with_member(bundle, "web"), pinned=["x" * 501]), "team", bundle)


def test_who_meets_the_change_of_someone_else_keeps_what_they_entered_and_can_save_it(
    signed_in: Client, ann: Any
) -> None:
    one = server("web", "search")
    bundle = make(ann, Membership(one, "web"))
    mine = edit(bundle, (one, "web"), name="Mine")
    signed_in.post(f"/agents/bundles/{bundle.slug}/edit/", edit(bundle, (one, "web"), name="Theirs"))
    answer = signed_in.post(f"/agents/bundles/{bundle.slug}/edit/", mine)
    assert answer.status_code == 422
    assert "Someone else has changed this bundle" in errors(answer)
    shown = answer.content.decode()
    assert 'value="Mine"' in shown
    version = re.search(r'name="version" value="(\d+)"', shown)
    assert version is not None
    again = signed_in.post(f"/agents/bundles/{bundle.slug}/edit/", mine | {"version": version[1]})
    assert again.status_code == 302
    assert Bundle.objects.get().name == "Mine"


def test_a_server_that_someone_else_added_meanwhile_keeps_what_it_offers(signed_in: Client, ann: Any) -> None:
    web, wiki = server("web", "search"), server("wiki", "search")
    bundle = make(ann, Membership(web, "web"))
    mine, both = edit(bundle, (web, "web"), name="Mine"), [Membership(web, "web"), Membership(wiki, "wiki", ["s*"])]
    bundle = changing.change(Actor.of_user(ann), ann, bundle, BundleInput("Team", both), bundle.version)
    answer = signed_in.post("/agents/bundles/team/edit/", mine)
    assert answer.status_code == 422
    assert "They added Wiki, which stays unless you remove it." in errors(answer)
    assert "required" not in errors(answer)
    form = answer.context["form"]
    shown = {part[name].html_name: part[name].value() for part in form.members for name in part.fields}
    again = mine | {name: value for name, value in shown.items() if value} | {"version": form["version"].value()}
    assert signed_in.post("/agents/bundles/team/edit/", again).status_code == 302
    assert [(row.alias, row.tools) for row in changing.current_members(bundle)] == [("web", ["*"]), ("wiki", ["s*"])]
    assert Bundle.objects.get().name == "Mine"


def test_a_server_that_someone_else_removed_meanwhile_is_still_in_the_form(signed_in: Client, ann: Any) -> None:
    web, wiki = server("web", "search"), server("wiki", "search", "drop")
    overridden = Membership(wiki, "wiki", overrides={"drop": Override("Drops it.")})
    bundle = make(ann, Membership(web, "web"), overridden)
    mine = edit(bundle, (web, "web"), (wiki, "wiki"), **{f"member-{wiki.uid}-tools": "search"})
    bundle = changing.change(
        Actor.of_user(ann), ann, bundle, BundleInput("Team", [Membership(web, "web")]), bundle.version
    )
    answer = signed_in.post("/agents/bundles/team/edit/", mine)
    assert "They removed Wiki, which comes back unless you remove it." in errors(answer)
    again = mine | {"version": bundle.version}
    assert signed_in.post("/agents/bundles/team/edit/", again).status_code == 302
    rows = changing.current_members(bundle)
    assert [(row.alias, row.tools) for row in rows] == [("web", ["*"]), ("wiki", ["search"])]
    assert rows[1].overrides == {"drop": {"description": "Drops it."}}


def test_a_change_behind_what_an_event_shows_is_an_event_all_the_same(ann: Any) -> None:
    web = server("web", "search")
    patterns = [f"tool_{number}" for number in range(60)]
    bundle = make(ann, Membership(web, "web", tools=patterns), instructions="x" * 600)
    for instructions, tools in (("x" * 599 + "y", patterns), ("x" * 599 + "y", [*patterns, "!tool_3"])):
        before = AuditEvent.objects.filter(action=AuditAction.BUNDLE_CHANGE).count()
        wanted = replace(changing.with_member(bundle, "web", tools=tools), instructions=instructions)
        bundle = changing.change(Actor.of_user(ann), ann, bundle, wanted, bundle.version)
        assert AuditEvent.objects.filter(action=AuditAction.BUNDLE_CHANGE).count() == before + 1
    body = AuditEvent.objects.filter(action=AuditAction.BUNDLE_CHANGE).latest("seq").body
    sides = json.loads(body)["details"]["changed"]["members"]
    assert [sides[side][0]["tools"][-1] for side in ("from", "to")] == ["… and 10 more", "… and 11 more"]


def test_a_server_is_proposed_no_alias_that_is_still_reserved_for_another(signed_in: Client, ann: Any) -> None:
    """The form has no field for the alias of a server that is being added."""
    first, second = server("customer-data-eu", "a"), server("customer-data-us", "b")
    bundle = make(ann, Membership(first, "customer-dat"), Membership(server("web", "search"), "web"))
    members = [(row.server, row.alias) for row in bundle.members.all()]
    removed = {f"member-{first.uid}-remove": "on"}
    answer = signed_in.post("/agents/bundles/team/edit/", edit(bundle, *members, add=[str(second.uid)], **removed))
    assert answer.status_code == 302, errors(answer)
    bundle.refresh_from_db()
    assert bundle.members.get(server=second).alias == "customer-d-2"
    again = edit(
        bundle, *[(row.server, row.alias) for row in bundle.members.filter(retired_at=None)], add=[str(first.uid)]
    )
    assert signed_in.post("/agents/bundles/team/edit/", again).status_code == 302
    assert bundle.members.get(server=first, retired_at=None).alias == "customer-dat"


def test_the_alias_of_a_deleted_server_is_given_to_no_other_one(signed_in: Client, ann: Any) -> None:
    """Its tools would get other names than the rules of the bundle have."""
    web, wiki = server("web", "drop"), server("wiki", "search")
    bundle = make(ann, Membership(web, "web"), Membership(wiki, "wiki"))
    names = {(str(web.uid), "drop"): "web", (str(wiki.uid), "search"): "wiki"}
    exposed.assign(bundle.pk, DefinitionKind.TOOL, names)
    boss = person("boss", "view_server", "delete_server")
    registering.delete(Actor.of_user(boss), boss, web)
    again = server("web", "drop")
    wanted = BundleInput("Team", [Membership(wiki, "wiki"), Membership(again, "web")], "team")
    with pytest.raises(ValidationError, match="it belonged to a server that was deleted"):
        changing.change(Actor.of_user(ann), ann, bundle, wanted, bundle.version)
    added = edit(bundle, (wiki, "wiki"), add=[str(again.uid)])
    assert signed_in.post("/agents/bundles/team/edit/", added).status_code == 302
    assert bundle.members.get(server=again).alias == "web-2"
    exposed.remove_old()
    assert ExposedName.objects.get(server_uid=web.uid).retired_at is not None
    ExposedName.objects.filter(server_uid=web.uid).update(retired_at=timezone.now() - exposed.TOMBSTONE)
    assert changing.of_deleted_servers(bundle) == {}
    exposed.remove_old()
    assert not ExposedName.objects.filter(server_uid=web.uid).exists()


def test_the_name_of_a_tool_that_its_server_no_longer_has_is_reserved_for_a_while_and_comes_back_with_it(
    ann: Any,
) -> None:
    web = server("web", "Search", "stays", "a.b")
    bundle, since = make(ann, Membership(web, "web")), web.sessions.get().state_since

    def listed(hours: int, *tools: str) -> dict[str, str]:
        found = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
        store_listing(web, DefinitionKind.TOOL, found, since + timedelta(hours=hours))
        bundle_contents.assign_names(ann, bundle)
        return {original: name for (_, original), name in exposed.known(bundle.pk, DefinitionKind.TOOL).items()}

    def removed(days: int) -> int:
        back = timezone.now() - timedelta(days=days)
        Definition.objects.filter(removed_at__isnull=False).update(removed_at=back)
        ExposedName.objects.update(created_at=back)
        ExposedName.objects.filter(retired_at__isnull=False).update(retired_at=back)
        return exposed.remove_old()

    before = listed(1, "Search", "stays", "a.b")
    assert listed(2, "search", "stays") == before | {"search": names.marked("web", (str(web.uid), "search"))}
    assert removed(days=0) == 0
    assert ExposedName.objects.filter(retired_at=None).count() == 4
    assert removed(days=2) == 0
    assert set(ExposedName.objects.filter(retired_at=None).values_list("original", flat=True)) == {"search", "stays"}
    assert listed(3, "stays", "a.b") == listed(2, "search", "stays") | {"a.b": before["a.b"]}
    assert removed(days=91) == 1
    assert set(ExposedName.objects.values_list("original", flat=True)) == {"search", "stays", "a.b"}


def test_an_alias_is_not_changed_while_what_a_rule_denies_would_be_allowed_by_it(signed_in: Client, ann: Any) -> None:
    web, wiki = server("web", "drop"), server("wiki", "search")
    bundle = make(ann, Membership(web, "web"), Membership(wiki, "wiki"))
    actor = Actor.of_user(ann)

    def rule(kind: PolicyKind, pattern: str, effect: PolicyEffect = PolicyEffect.DENY) -> None:
        policy_changes.add_rule(actor, ann, bundle, Rule(effect, kind, pattern))

    def renamed() -> Any:
        return signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "net"), (wiki, "wiki")))

    rule(PolicyKind.TOOL, "web__drop*")
    rule(PolicyKind.RESOURCE, "file://web.mcp/secret*", PolicyEffect.ASK)
    rule(PolicyKind.TOOL, "web__search", PolicyEffect.ALLOW)
    assert "Add one for net__drop*, or remove it, before you change the alias." in errors(renamed())
    rule(PolicyKind.TOOL, "net__drop*")
    assert "Add one for file://net.mcp/secret*" in errors(renamed())
    rule(PolicyKind.RESOURCE, "file://net.mcp/secret*", PolicyEffect.DENY)
    assert renamed().status_code == 302


@pytest.mark.parametrize(
    ("kind", "pattern", "wanted"),
    [
        (PolicyKind.TOOL, "w*", "net__*"),
        (PolicyKind.TOOL, "w?b__drop", "net__drop"),
        (PolicyKind.TOOL, "*b__drop", "net__drop"),
        (PolicyKind.RESOURCE, "file*web*secret", "file://net.mcp/*secret"),
        (PolicyKind.RESOURCE, "*://w*/secret", "file://net.mcp/secret"),
        (PolicyKind.RESOURCE, "urn:mcp:w*", "urn:mcp:net:*"),
        (PolicyKind.TOOL, "*__drop", ""),
        (PolicyKind.TOOL, "wiki__*", ""),
        (PolicyKind.RESOURCE, "*secret*", ""),
    ],
)
def test_a_rule_with_a_wildcard_in_the_alias_counts_for_the_names_under_the_new_one(
    signed_in: Client, ann: Any, kind: PolicyKind, pattern: str, wanted: str
) -> None:
    web, wiki = server("web", "drop"), server("wiki", "search")
    bundle = make(ann, Membership(web, "web"), Membership(wiki, "wiki"))
    policy_changes.add_rule(Actor.of_user(ann), ann, bundle, Rule(PolicyEffect.DENY, kind, pattern))
    changed = signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "net"), (wiki, "wiki")))
    if not wanted:
        assert changed.status_code == 302
        return
    assert f"Add one for {wanted}, or remove it" in errors(changed)
    policy_changes.add_rule(Actor.of_user(ann), ann, bundle, Rule(PolicyEffect.DENY, kind, "*"))
    changed = signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "net"), (wiki, "wiki")))
    assert changed.status_code == 302


def test_a_rule_for_a_name_that_is_cut_elsewhere_under_the_new_alias_is_missed(signed_in: Client, ann: Any) -> None:
    long = "drop_" + "x" * 60
    web, wiki = server("web", long), server("wiki", "search")
    bundle, kind = make(ann, Membership(web, "web"), Membership(wiki, "wiki")), DefinitionKind.TOOL
    target, actor = (str(web.uid), long), Actor.of_user(ann)
    old = exposed.assign(bundle.pk, kind, {target: "web"})[target]
    new = names.marked("network", target)

    def renamed() -> Any:
        return signed_in.post("/agents/bundles/team/edit/", edit(bundle, (web, "network"), (wiki, "wiki")))

    policy_changes.add_rule(actor, ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, old))
    only_renamed = old.replace("web__", "network__")
    assert only_renamed in errors(renamed())
    policy_changes.add_rule(actor, ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, only_renamed))
    assert f"Add one for {new}, or remove it" in errors(renamed())
    policy_changes.add_rule(actor, ann, bundle, Rule(PolicyEffect.DENY, PolicyKind.TOOL, new))
    assert renamed().status_code == 302


def test_a_server_that_comes_back_has_the_alias_and_so_the_rules_that_it_had_and_offers_no_more(
    signed_in: Client, ann: Any
) -> None:
    web, wiki = server("web", "drop"), server("wiki", "search")
    bundle = make(ann, Membership(web, "net", ["*", "!drop"]), Membership(wiki, "wiki"))
    for change in ({f"member-{web.uid}-remove": "on"}, {"add": [str(web.uid)]}):
        bundle.refresh_from_db()
        members = [(row.server, row.alias) for row in changing.current_members(bundle)]
        assert signed_in.post("/agents/bundles/team/edit/", edit(bundle, *members, **change)).status_code == 302
    rows = changing.current_members(bundle)
    assert [(row.alias, row.tools) for row in rows] == [("wiki", ["*"]), ("net", ["*", "!drop"])]


# --- another bundle has the short name ---------------------------------------------------------------------------------
def test_the_configurations_of_a_renamed_bundle_have_its_own_address(signed_in: Client, ann: Any) -> None:
    web, other = server("web", "search"), server("other", "search")
    bundle = make(ann, Membership(web, "web"))
    fields = Fields(signed_in.get("/agents/use/team/").content.decode()).found
    Bundle.objects.filter(pk=bundle.pk).update(slug="team-old")
    make(ann, Membership(other, "other"))
    shown = signed_in.post("/agents/use/team/", fields).content.decode()
    assert "/mcp/team-old" in shown
    assert "/mcp/team<" not in shown
    assert [one.pk for one in AgentToken.objects.get().servers.all()] == [web.pk]


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("edit/", {"name": "Mine"}),
        ("delete/", {}),
        ("members/web/", {}),
        ("members/web/tool/?tool=search", {"description": "Mine"}),
        ("policy/", {"otherwise": "deny"}),
    ],
)
def test_a_form_of_a_bundle_is_never_of_another_one_that_got_its_short_name(
    signed_in: Client, ann: Any, path: str, more: dict[str, str]
) -> None:
    web = server("web", "search")
    bundle = make(ann, Membership(web, "web"))
    shown = signed_in.get(f"/agents/bundles/team/{path}").content.decode().partition("<main")[2]
    fields = Fields(shown).found
    assert fields["uid"] == str(bundle.uid)
    address = f"/agents/bundles/team/{path.replace('policy/', 'policy/change/')}"
    Bundle.objects.filter(pk=bundle.pk).update(slug="team-old")
    other = make(ann, Membership(web, "web"))
    before = Bundle.objects.filter(pk=other.pk).values().get(), AgentPolicy.objects.filter(bundle=other).count()
    taken = {"slug": "team-old"} if path == "edit/" else {}
    answer = signed_in.post(address, fields | more | taken)
    assert answer.status_code == 302, errors(answer)
    Bundle.objects.filter(pk=bundle.pk).update(deleted_at=timezone.now())
    answer = signed_in.post(address, fields | more)
    assert answer.status_code == 409
    assert "another bundle now has its short name. Nothing was changed." in answer.content.decode()
    after = Bundle.objects.filter(pk=other.pk).values().get(), AgentPolicy.objects.filter(bundle=other).count()
    assert after == before
