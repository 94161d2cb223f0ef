"""The lists of an endpoint, from the catalogue: raw definitions, pages, cursors, what a token sees."""

import json
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from servers.agents import tokens
from servers.agents.tokens import NewToken
from servers.audit.record import Actor
from servers.bundles import changing
from servers.enums import DefinitionKind
from servers.models import AgentToken, Bundle, BundleMember, Definition, Server
from sessions.agents import endpoints
from sessions.agents.catalog import lists, model_lists
from sessions.agents.catalog.bundle_contents import contents
from sessions.agents.endpoints import Entry, NoEndpoint, NoSession
from sessions.enums import SessionState
from sessions.mcp.core.versions import Era
from sessions.mcp.server import definitions
from sessions.mcp.server.refusals import Refusal
from sessions.models import AgentSession, McpSession
from tests.servers.conftest import person
from tests.sessions.agents.door import make_listed
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db(transaction=True)
EVERYTHING = {"tools": ["*"], "resources": ["*"], "prompts": ["*"]}


@pytest.fixture
def ann(db: None) -> Any:
    return person("ann", "view_server", "call_tool")


def entry(user: Any, session: McpSession, **more: Any) -> Entry:
    wanted = NewToken("t", 7, ["mcp:list", "mcp:call"], **more)
    principal = tokens.principal_of(tokens.issue(Actor.of_user(user), user, wanted).text, "")
    return Entry(principal, endpoints.endpoint_of(principal, session.server.slug))


def offer(session: McpSession, *bodies: str, kind: DefinitionKind = DefinitionKind.TOOL) -> None:
    for position, body in enumerate(bodies):
        Definition.objects.create(
            server=session.server,
            identity=session.identity,
            kind=kind,
            key=json.loads(body).get("name") or json.loads(body)["uri"],
            body=body,
            position=position,
            digest=f"{position:064}",
            first_seen_at=timezone.now(),
            changed_at=timezone.now(),
        )


def read(found: Entry, method: str = "tools/list", era: Era = Era.LEGACY, **params: Any) -> dict[str, Any]:
    return json.loads(lists.page(found, method, params, era))


def test_definitions_pass_as_the_server_wrote_them_except_tasks(ann: Any) -> None:
    session = make_session()
    odd = '{"name":"a","inputSchema":{"$anchor":"x","if":{}},"_meta":{"k":1e2},"icons":[]}'
    offer(session, odd, '{"name":"b","execution":{"taskSupport":"required"},"inputSchema":{}}')
    text = lists.page(entry(ann, session), "tools/list", {}, Era.MODERN)
    assert odd in text
    assert json.loads(text)["tools"][1] == {"name": "b", "inputSchema": {}}
    assert json.loads(text)["ttlMs"] == 0  # the server is not connected


def test_long_lists_come_in_pages_and_a_cursor_fits_only_its_own_list(ann: Any) -> None:
    session, other = make_session(), make_session("other")
    offer(session, *(json.dumps({"name": f"t{number}"}) for number in range(300)))
    offer(other, '{"name":"x"}')
    found = entry(ann, session)
    first = read(found)
    second = read(found, cursor=first["nextCursor"])
    names = [tool["name"] for tool in first["tools"] + second["tools"]]
    assert names == [f"t{number}" for number in range(300)]
    assert "nextCursor" not in second
    for wrong, cursor in ((found, "x"), (found, 7), (entry(ann, other), first["nextCursor"])):
        with pytest.raises(Refusal) as refused:
            read(wrong, cursor=cursor)
        assert refused.value.code == -32602
    with pytest.raises(Refusal):
        read(found, "prompts/list", cursor=first["nextCursor"])
    Definition.objects.filter(key="t5").update(digest="f" * 64)
    with pytest.raises(Refusal, match="has changed"):
        read(found, cursor=first["nextCursor"])


def test_removed_and_forbidden_tools_are_not_listed_and_change_no_fingerprint(ann: Any) -> None:
    session = make_session()
    offer(session, '{"name":"keep_a"}', '{"name":"drop"}', '{"name":"keep_b"}')
    found = entry(ann, session, tools=("keep_*",))
    assert [tool["name"] for tool in read(found)["tools"]] == ["keep_a", "keep_b"]
    before = lists.fingerprints(found)
    Definition.objects.filter(key="drop").update(digest="f" * 64)
    assert lists.fingerprints(found) == before
    Definition.objects.filter(key="keep_b").update(removed_at=timezone.now())
    after = lists.fingerprints(found)
    assert {word for word in before if before[word] != after[word]} == {"tools"}
    assert [tool["name"] for tool in read(found)["tools"]] == ["keep_a"]


def test_a_list_that_was_never_read_or_failed_is_known_as_such(ann: Any) -> None:
    session = make_session()
    assert not lists.was_read(entry(ann, session).endpoint, "tools/list")
    counts = {"tool": {"read_at": "2026-01-01"}, "prompt": {"problem": "It took too long."}}
    McpSession.objects.update(catalog_counts=counts)
    found = entry(ann, session)
    assert lists.was_read(found.endpoint, "tools/list")
    assert lists.problem(found.endpoint, "prompts/list") == "It took too long."


def test_what_a_stream_compares_of_a_bundle_reads_no_definition(ann: Any) -> None:
    session = make_session()
    bundle = Bundle.objects.create(slug="team", name="Team")
    BundleMember.objects.create(bundle=bundle, server=session.server, alias="files", tools=["*"])
    offer(session, '{"name":"a","inputSchema":{}}')
    session.state, session.revision = SessionState.READY, "2025-11-25"
    session.server_capabilities, session.catalog_counts = {"tools": {}}, {"tool": {"read_at": "2026-01-01"}}
    session.save()
    found = replace(entry(ann, session), place=endpoints.endpoint_of(entry(ann, session).principal, "team"))
    with CaptureQueriesContext(connection) as queries:
        before = lists.fingerprints(found)
    asked = [query["sql"] for query in queries if Definition._meta.db_table in query["sql"]]
    assert asked
    assert not any('"body"' in sql for sql in asked)
    Definition.objects.update(digest="f" * 64)
    assert lists.fingerprints(found)["tools"] != before["tools"]


def of_bundle(user: Any, *sessions: McpSession) -> Entry:
    """Of a bundle of these servers, whose lists were read."""
    bundle = Bundle.objects.create(slug="team", name="Team")
    for session in sessions:
        slug = session.server.slug
        BundleMember.objects.create(bundle=bundle, server=session.server, alias=slug, tools=["*"], resources=["*"])
        session.state, session.revision = SessionState.READY, "2025-11-25"
        session.server_capabilities = {"tools": {}, "resources": {}}
        session.catalog_counts = {kind.value: {"read_at": "2026-01-01"} for kind in DefinitionKind}
        session.save()
    found = entry(user, sessions[0])
    return replace(found, place=endpoints.endpoint_of(found.principal, "team"))


def test_an_output_schema_that_is_no_objects_reaches_only_agents_whose_revision_has_it(ann: Any) -> None:
    session = make_session()
    of_object = {"type": "object", "properties": {"outputSchema": {"type": "array"}}}
    array = {"name": "array", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}}
    plain = {"name": "plain", "inputSchema": {"type": "object"}, "outputSchema": of_object}
    offer(session, json.dumps(array), json.dumps(plain))
    without = {"name": "array", "inputSchema": {"type": "object"}}
    found = entry(ann, session)
    assert read(found, era=Era.MODERN)["tools"] == [array, plain]
    assert read(found)["tools"] == [without, plain]
    bundled = of_bundle(ann, session)
    for era, schemas in ((Era.MODERN, [{"type": "array"}, of_object]), (Era.LEGACY, [None, of_object])):
        assert [tool.get("outputSchema") for tool in read(bundled, era=era)["tools"]] == schemas


def test_one_definition_that_clients_cannot_read_costs_no_other_of_a_bundle(ann: Any) -> None:
    good, bad = make_session("good"), make_session("bad")
    offer(good, '{"name":"a","inputSchema":{"type":"object"}}')
    odd = {"name": "odd", "inputSchema": {}, "description": None, "annotations": {"readOnlyHint": 1, "title": "Odd"}}
    offer(bad, '{"name":"list","inputSchema":[]}', '{"name":"bare"}', json.dumps(odd))
    offer(bad, '{"uri":"x://a","size":null}', kind=DefinitionKind.RESOURCE)
    found = of_bundle(ann, good, bad)
    for era in Era:
        told = read(found, era=era)
        assert told["tools"] == [
            {"name": "good__a", "inputSchema": {"type": "object"}},
            {"name": "bad__bare", "inputSchema": {"type": "object"}},
            {"name": "bad__odd", "inputSchema": {"type": "object"}, "annotations": {"title": "Odd"}},
        ]
        assert told["_meta"][lists.MEMBERS_KEY] == {"good": "ok", "bad": f"ok; 1 left out. {definitions.BAD_SCHEMA}"}
        resources = read(found, "resources/list", era)["resources"]
        assert resources == [{"uri": "x://bad.mcp/a", "name": "x://bad.mcp/a"}]
    lines = contents(ann, Bundle.objects.get(), list(BundleMember.objects.order_by("pk"))).lines
    assert {line.row.key: line.reason for line in lines if not line.listed} == {"list": definitions.BAD_SCHEMA}


def test_a_long_definition_of_a_bundle_is_not_kept(ann: Any) -> None:
    session = make_session()
    bundle = Bundle.objects.create(slug="team", name="Team")
    BundleMember.objects.create(bundle=bundle, server=session.server, alias="files", tools=["*"])
    long = {"name": "long", "title": "Long", "description": "x" * lists.KEPT_CHARS, "inputSchema": {}}
    offer(session, '{"name":"short","title":"Short","inputSchema":{}}', json.dumps(long))
    session.state, session.revision = SessionState.READY, "2025-11-25"
    session.server_capabilities, session.catalog_counts = {"tools": {}}, {"tool": {"read_at": "2026-01-01"}}
    session.save()
    found = replace(entry(ann, session), place=endpoints.endpoint_of(entry(ann, session).principal, "team"))
    lists._exposed.cache_clear()
    tools = read(found)["tools"]
    assert [tool["name"] for tool in tools] == ["files__short", "files__long"]
    assert tools[1]["description"] == long["description"]
    assert lists._exposed.cache_info().currsize == 1


def test_only_arguments_that_headers_repeat_are_checked(ann: Any) -> None:
    session = make_session()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    offer(session, json.dumps({"name": "a", "inputSchema": schema}), '{"name":"b","inputSchema":{}}')
    found = entry(ann, session)
    assert [one.header for one in lists.mirrored(found, "a")] == ["Region"]
    assert lists.mirrored(found, "b") == ()
    assert lists.mirrored(found, "nope") == ()


def test_an_endpoint_is_there_for_those_who_may_see_the_server_and_a_session_for_its_token(ann: Any) -> None:
    session, other = make_session(), make_session("other")
    found = entry(ann, session, servers=[session.server])
    with pytest.raises(NoEndpoint):
        endpoints.endpoint_of(found.principal, "other")
    session.server.archived_at = timezone.now()
    session.server.save()
    with pytest.raises(NoEndpoint):
        endpoints.endpoint_of(found.principal, "files")
    blind = entry(ann, other)
    fields = {"revision": "2025-11-25", "created_at": timezone.now(), "last_seen_at": timezone.now()}
    mine = AgentSession.objects.create(key="mine", token=blind.principal.token, server=other.server, **fields)
    assert endpoints.entry_of(blind.principal, "other", "mine").session == mine
    AgentSession.objects.update(ended_at=timezone.now())
    for key in ("mine", "unknown"):
        with pytest.raises(NoSession):
            endpoints.entry_of(blind.principal, "other", key)


def test_streams_find_out_together_which_tokens_count_no_more(ann: Any, django_assert_num_queries: Any) -> None:
    bob = person("bob", "view_server", "call_tool")
    made = [
        tokens.issue(Actor.of_user(user), user, NewToken("t", 7, ["mcp:list"])).token for user in (ann, ann, ann, bob)
    ]
    good, revoked, expired, disabled = made
    tokens.revoke(Actor.of_user(ann), ann, revoked)
    AgentToken.objects.filter(pk=expired.pk).update(expires_at=timezone.now())
    type(bob).objects.filter(pk=bob.pk).update(is_active=False)
    with django_assert_num_queries(1):
        assert tokens.still_valid_keys([good.pk, revoked.pk, expired.pk, disabled.pk, 0]) == {good.pk: True}


def test_a_long_list_is_paged_and_only_the_bodies_of_a_page_are_read(ann: Any) -> None:
    session = make_session()
    names = [f"t{number:03}" for number in range(lists.PAGE + 30)]
    offer(session, *(json.dumps({"name": name, "inputSchema": {}}) for name in names))
    found = entry(ann, session, tools=("t0*", "t1*", "t2*", "other"))
    with CaptureQueriesContext(connection) as first:
        page = read(found)
    with CaptureQueriesContext(connection) as second:
        rest = read(found, cursor=page["nextCursor"])
    assert [one["name"] for one in page["tools"] + rest["tools"]] == names
    assert "nextCursor" not in rest
    bodies = [one["sql"] for queries in (first, second) for one in queries if "body" in one["sql"]]
    assert all("LIMIT" in sql or " IN (" in sql for sql in bodies)
    assert len(bodies) == 4


def test_a_long_list_of_a_bundle_reads_only_the_bodies_of_a_page(ann: Any) -> None:
    one, two = make_session("one"), make_session("two")
    names = [f"t{number:03}" for number in range(lists.PAGE)]
    offer(one, *(json.dumps({"name": name, "title": "T", "inputSchema": {"type": "object"}}) for name in names))
    offer(two, '{"name":"a","title":"T","inputSchema":{"type":"object"}}')
    Definition.objects.update(title="T")
    found = of_bundle(ann, one, two)
    with CaptureQueriesContext(connection) as queries:
        page = read(found)
        rest = read(found, cursor=page["nextCursor"])
    tools = page["tools"] + rest["tools"]
    assert [tool["name"] for tool in tools] == [*(f"one__{name}" for name in names), "two__a"]
    assert {tool["title"] for tool in tools} == {"T (One)", "T (Two)"}
    bodies = [query["sql"] for query in queries if '"body"' in query["sql"]]
    assert len(bodies) == 4
    assert all("LIMIT" in sql or '"id" IN (' in sql for sql in bodies)


def test_where_those_with_tools_are_off_a_bundles_list_is_an_error_and_no_server_without_tools_makes_it_empty(
    ann: Any,
) -> None:
    files, docs = make_listed("files", "drop"), make_listed("docs")
    Definition.objects.filter(server=docs.server).delete()
    McpSession.objects.filter(pk=files.pk).update(instructions="Use drop with care.")
    McpSession.objects.filter(pk=docs.pk).update(server_capabilities={"resources": {}}, instructions="Read them.")
    bundle = Bundle.objects.create(slug="team", name="Team")
    for position, session in enumerate((files, docs)):
        bundle.members.create(server=session.server, alias=session.server.slug, position=position, **EVERYTHING)
    wanted = NewToken("t", 7, ["mcp:list", "mcp:call"])
    principal = tokens.principal_of(tokens.issue(Actor.of_user(ann), ann, wanted).text, "")

    def found() -> Entry:
        return Entry(principal, endpoints.endpoint_of(principal, "team"))

    assert [tool["name"] for tool in read(found())["tools"]] == ["files__drop"]
    Server.objects.filter(pk=files.server.pk).update(enabled=False)
    with pytest.raises(Refusal, match="No server of Team that offers tools can be listed"):
        read(found())
    assert read(found(), "resources/list")["resources"] == []
    assert read(found(), "prompts/list")["prompts"] == []
    assert found().place.instructions == "# Docs (names that begin with docs__)\nRead them."
    shown = model_lists.of_bundle(ann, bundle, list(changing.current_members(bundle)))
    assert (shown.tools, [(one.alias, one.off) for one in shown.off]) == ([], [("files", "disabled")])
    client = Client()
    client.force_login(ann)
    for page in ("/agents/model/team/", "/agents/bundles/team/"):
        assert "Files (disabled)" in client.get(page).content.decode()
    bundle.members.filter(alias="files").update(tools=[])
    assert read(found())["tools"] == []
