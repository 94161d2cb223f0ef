"""The history of a definition, its badges, and the line about the last list read."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.definitions.versions import Counts, store_listing
from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.catalog import definition_versions
from sessions.catalog import reading as catalog_reading
from sessions.catalog.reading import Note
from sessions.mcp.core.errors import Fault
from sessions.models import McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_hold, make_session

pytestmark = pytest.mark.django_db
NOW = timezone.now()
OBJECT: dict[str, Any] = {"type": "object"}
WIDE = OBJECT | {"properties": {"q": {"type": "string"}}}
NEEDED = WIDE | {"required": ["q"]}
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def session() -> McpSession:
    return make_session("orders")


@pytest.fixture
def client() -> Client:
    found = Client()
    found.force_login(person("vera", "view_server"))
    return found


def tool(name: str = "find", schema: dict[str, Any] = OBJECT, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema, **fields}


def listed(server: Server, *items: dict[str, Any], days_ago: float = 0) -> None:
    store_listing(server, DefinitionKind.TOOL, items, NOW - timedelta(days=days_ago))


def page(client: Client, key: str = "find", **query: object) -> str:
    answer = client.get("/servers/orders/definitions/tool/", {"key": key, **query})
    assert answer.status_code == 200
    return answer.content.decode()


def find(server: Server, key: str = "find") -> Definition:
    return server.definitions.get(key=key)


def test_each_version_is_listed_with_what_it_means_and_compared_with_the_one_before(
    client: Client, session: McpSession
) -> None:
    listed(session.server, tool(), days_ago=3)
    listed(session.server, tool(schema=WIDE), days_ago=2)
    listed(session.server, tool(schema=NEEDED), days_ago=1)
    text = page(client)
    for words in ("Version 3", "Breaking", "Argument “q” is now required.", "Compatible", "First seen"):
        assert words in text
    assert "Compared with" in text
    assert text.count('<tr class="added">') == 3
    assert "&quot;required&quot;" in text


def test_any_two_versions_can_be_compared_by_their_address(client: Client, session: McpSession) -> None:
    for age, schema in ((3, OBJECT), (2, WIDE), (1, NEEDED)):
        listed(session.server, tool(schema=schema), days_ago=age)
    first, _, last = find(session.server).versions.order_by("id").values_list("pk", flat=True)
    text = page(client, version=last, against=first)
    assert "version 1</a>" in text
    assert "&quot;properties&quot;" in text
    backwards = page(client, version=first, against=last)
    assert '<tr class="removed">' in backwards
    assert '<tr class="added">' not in backwards


def test_lines_that_are_not_shown_are_counted_and_no_download_is_promised(client: Client, session: McpSession) -> None:
    listed(session.server, tool(), days_ago=2)
    listed(session.server, tool(schema=OBJECT | {"properties": {"q": {"enum": [f"v{one}" for one in range(600)]}}}))
    text = page(client)
    assert "more changed lines not shown." in text
    assert "Download both versions" not in text


def test_a_first_version_is_shown_whole(client: Client, session: McpSession) -> None:
    listed(session.server, tool(description="Finds <things>"))
    text = page(client)
    assert "First known version." in text
    assert "Finds &lt;things&gt;" in text


def test_a_removed_definition_keeps_its_page_and_is_at_the_end_of_the_list(client: Client, session: McpSession) -> None:
    listed(session.server, tool(), tool("other"), days_ago=2)
    listed(session.server, tool("other"), days_ago=1)
    removal = find(session.server).versions.get(change="removed")
    text = page(client, version=removal.pk)
    assert "The server no longer lists it." in text
    assert "Open the tool" not in text
    assert "First seen" in page(client)
    tools = client.get("/servers/orders/tools/").content.decode()
    assert '/servers/orders/definitions/tool/?key=find"' in tools
    assert "Removed <time" in tools


def test_a_page_that_lists_nothing_any_more_still_shows_what_it_listed(client: Client, session: McpSession) -> None:
    listed(session.server, tool(), days_ago=2)
    listed(session.server, days_ago=1)
    assert "Removed <time" in client.get("/servers/orders/tools/").content.decode()


def test_hostile_names_and_bodies_stay_text(client: Client, session: McpSession) -> None:
    listed(session.server, tool(HOSTILE, description=HOSTILE), days_ago=2)
    listed(session.server, tool(HOSTILE, OBJECT | {"properties": {HOSTILE: {}, "x\u202ey": {}}}, description="\ud800"))
    for text in (page(client, HOSTILE), client.get("/servers/orders/tools/").content.decode()):
        assert HOSTILE not in text
        assert "&lt;img src=x" in text
    assert "U+202E" in page(client, HOSTILE)


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        ("tool", {"key": "nothing"}),
        ("tool", {}),
        ("prompt", {"key": "find"}),
        ("nonsense", {"key": "find"}),
        ("tool", {"key": "find", "version": "999999999"}),
        ("tool", {"key": "find", "against": "999999999"}),
    ],
    ids=str,
)
def test_what_the_server_never_listed_has_no_history(
    client: Client, session: McpSession, kind: str, query: dict[str, str]
) -> None:
    listed(session.server, tool())
    assert client.get(f"/servers/orders/definitions/{kind}/", query).status_code == 404


def test_a_version_of_another_definition_is_not_to_be_had(client: Client, session: McpSession) -> None:
    listed(session.server, tool(), tool("other", description="secret of another"))
    other = find(session.server, "other").versions.get()
    assert client.get("/servers/orders/definitions/tool/", {"key": "find", "version": other.pk}).status_code == 404


def test_nonsense_in_the_address_is_left_aside(client: Client, session: McpSession) -> None:
    listed(session.server, tool())
    assert "Version 1" in page(client, version="²", before="-1", against="x")


def test_versions_come_by_pages(client: Client, session: McpSession) -> None:
    for number in range(definition_versions.PAGE + 5):
        listed(session.server, tool(description=str(number)), days_ago=1)
    text = page(client)
    assert "Version 55</b>" in text
    assert "Version 5</b>" not in text
    older = definition_versions.versions(find(session.server)).older
    assert "Version 5</b>" in page(client, before=older)


def test_versions_that_are_too_large_are_distinguished_by_their_digests(client: Client, session: McpSession) -> None:
    huge = "x" * (definition_versions.PRETTY_CHARS + 1)
    listed(session.server, tool(description=huge), days_ago=1)
    listed(session.server, tool(description=huge + "y"))
    assert "too large to be compared" in page(client)


# --- badges ------------------------------------------------------------------------------------------------------------
def badge(client: Client) -> str:
    text = client.get("/servers/orders/tools/", {"tool": "find"}).content.decode()
    return text.partition('<div class="tags">')[2].partition("</div>")[0]


def test_a_changed_tool_says_so_for_a_week_and_leads_to_its_versions(client: Client, session: McpSession) -> None:
    listed(session.server, tool(), days_ago=9)
    assert "Changed" not in badge(client)
    listed(session.server, tool(schema=NEEDED), days_ago=1)
    assert "breaking" in badge(client)
    assert "/servers/orders/definitions/tool/?key=find" in badge(client)
    listed(session.server, tool(schema=NEEDED, description="new words"))
    assert "breaking" in badge(client), "words after it do not hide what broke"


def test_a_change_of_last_week_is_no_news(client: Client, session: McpSession) -> None:
    listed(session.server, tool(), days_ago=20)
    listed(session.server, tool(schema=NEEDED), days_ago=8)
    assert "Changed" not in badge(client)


def test_badges_cost_one_query_however_long_the_list(session: McpSession, django_assert_num_queries: Any) -> None:
    listed(session.server, *(tool(f"t{n}") for n in range(30)), days_ago=2)
    listed(session.server, *(tool(f"t{n}", WIDE) for n in range(30)), days_ago=1)
    with django_assert_num_queries(1):
        found = definition_versions.badges(session.server, "tool")
    assert {one.change for one in found.values()} == {"compatible"}
    assert len(found) == 30


# --- list reads ----------------------------------------------------------------------------------------------------------
def noted(lease: Any, at: datetime, **fields: Any) -> None:
    catalog_reading.note(lease, 0, {DefinitionKind.TOOL: Note(at, **fields)}, [DefinitionKind.TOOL], None)


def strip(client: Client) -> str:
    text = client.get("/servers/orders/tools/").content.decode()
    return text.partition('id="catalog-reading-list"')[2].partition("{#")[0][:2_000]


def test_the_page_says_what_the_last_reading_changed_and_when(client: Client, session: McpSession) -> None:
    listed(session.server, tool())
    lease = make_hold(session)
    assert "Not loaded yet" in strip(client)
    noted(lease, NOW)
    assert "Loaded" in strip(client)
    noted(lease, NOW, counts=Counts(2, 1, 0))
    assert "2 added, 1 changed" in strip(client)
    noted(lease, NOW)
    assert "Unchanged, checked" in strip(client)


def test_a_reading_that_failed_keeps_the_one_before_and_tells_why(client: Client, session: McpSession) -> None:
    listed(session.server, tool())
    lease = make_hold(session)
    noted(lease, NOW - timedelta(hours=1), counts=Counts(2, 0, 0))
    noted(lease, NOW, problem=f"The tools could not be listed: {HOSTILE}\0")
    text = strip(client)
    assert "The list of tools could not be read" in text
    assert "&lt;img" in text
    session.refresh_from_db()
    assert session.catalog_read_at == NOW - timedelta(hours=1)
    assert session.catalog_warnings[0].startswith("The tools could not be listed")
    noted(lease, NOW)
    assert "could not be read" not in strip(client)


def test_the_warning_about_a_list_over_a_limit_names_the_limit_and_who_may_change_it(session: McpSession) -> None:
    noted(make_hold(session), NOW, problem="A message is nested more than 64 levels deep.", fault=Fault.DEPTH_LIMIT)
    session.refresh_from_db()
    (warning,) = session.catalog_warnings
    assert warning.startswith(
        "The tools could not be listed: A message is nested more than 64 levels deep. Limit: 64 levels"
    )
    assert "Change it for this server under Settings, Limits" in warning


def test_a_warning_is_on_the_tab_of_the_list_that_it_is_about(client: Client, session: McpSession) -> None:
    listed(session.server, tool())
    prompt = {"name": "review", "description": "Reviews code."}
    store_listing(session.server, DefinitionKind.PROMPT, [prompt], NOW)
    lease = make_hold(session)
    notes = {
        DefinitionKind.TOOL: Note(NOW, warnings=("The tool 'a' was left out.",)),
        DefinitionKind.PROMPT: Note(NOW, warnings=(f"The prompt 'b' was left out: {HOSTILE}\0",)),
    }
    catalog_reading.note(lease, 0, notes, list(notes), None)
    tools, prompts = (client.get(f"/servers/orders/{tab}/").content.decode() for tab in ("tools", "prompts"))
    assert "The tool &#x27;a&#x27; was left out." in tools
    assert "The prompt &#x27;b&#x27;" not in tools
    assert "The prompt &#x27;b&#x27; was left out: &lt;img" in prompts
    assert "The tool &#x27;a&#x27;" not in prompts
    catalog_reading.note(lease, 0, {kind: Note(NOW) for kind in notes}, list(notes), None)
    assert "was left out" not in client.get("/servers/orders/tools/").content.decode()


def test_who_may_not_call_is_not_offered_to_read_the_lists_again(client: Client, session: McpSession) -> None:
    listed(session.server, tool())
    assert "Reload the lists" not in strip(client)
    client.force_login(person("otto", "view_server", "call_tool"))
    assert "Reload the lists" in strip(client)


def test_an_overtaken_owner_notes_nothing(session: McpSession) -> None:
    lease = make_hold(session)
    McpSession.objects.update(epoch=99)
    assert not catalog_reading.note(lease, 0, {DefinitionKind.TOOL: Note(NOW)}, [DefinitionKind.TOOL], None)
    session.refresh_from_db()
    assert session.catalog_counts == {}
