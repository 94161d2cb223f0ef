from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from servers.definitions import trimming
from servers.definitions.versions import Counts, definitions, digest_of, read_listing, store, store_listing
from servers.enums import DefinitionKind
from servers.models import Definition, DefinitionVersion, Identity, Server

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def server() -> Server:
    return Server.objects.create(slug="s", name="S", transport="stdio")


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def shared(server: Server) -> Identity:
    return server.identities.get_or_create()[0]


def listed(server: Server, *items: dict[str, Any], hours: int = 0) -> Counts:
    return store_listing(server, DefinitionKind.TOOL, items, NOW + timedelta(hours=hours))


def test_a_first_listing_keeps_order_titles_and_one_version_each(server: Server) -> None:
    annotated = tool("b", annotations={"title": "Bee"})
    assert listed(server, annotated, tool("a", title="Ay", description="d")) == Counts(added=2)
    rows = list(definitions(server, DefinitionKind.TOOL))
    assert [(row.key, row.title, row.description) for row in rows] == [("b", "Bee", ""), ("a", "Ay", "d")]
    assert [row.versions.count() for row in rows] == [1, 1]


def test_the_same_listing_again_changes_nothing(server: Server) -> None:
    listed(server, tool("a"), tool("b"))
    assert not listed(server, {"inputSchema": {"type": "object"}, "name": "a"}, tool("b"), hours=1)
    assert definitions(server, DefinitionKind.TOOL).first().changed_at == NOW


def test_a_changed_tool_keeps_its_old_version(server: Server) -> None:
    listed(server, tool("a", description="old"))
    assert listed(server, tool("a", description="new"), hours=1) == Counts(changed=1)
    row = definitions(server, DefinitionKind.TOOL).get()
    assert (row.description, row.first_seen_at, row.changed_at) == ("new", NOW, NOW + timedelta(hours=1))
    assert [version.digest == row.digest for version in row.versions.all()] == [True, False]


def test_a_removed_tool_is_hidden_and_comes_back_with_its_history(server: Server) -> None:
    listed(server, tool("a"), tool("b"))
    assert listed(server, tool("b"), hours=1) == Counts(removed=1)
    assert [row.key for row in definitions(server, DefinitionKind.TOOL)] == ["b"]
    assert listed(server, tool("b"), hours=2) == Counts()
    assert listed(server, tool("b"), tool("a"), hours=3) == Counts(changed=1)
    assert [row.key for row in definitions(server, DefinitionKind.TOOL)] == ["b", "a"]
    assert server.definitions.get(key="a").first_seen_at == NOW


def versions(server: Server, key: str) -> list[tuple[str, list[str]]]:
    rows = server.definitions.get(key=key).versions.order_by("id")
    return [(row.change, row.reasons) for row in rows]


def test_each_version_says_what_it_means_for_anyone_who_uses_the_tool(server: Server) -> None:
    wide = {"type": "object", "properties": {"q": {"type": "string"}}}
    listed(server, tool("a"))
    listed(server, tool("a", description="new"), hours=1)
    listed(server, tool("a", inputSchema=wide), hours=2)
    listed(server, tool("a", inputSchema=wide | {"required": ["q"]}), hours=3)
    listed(server, hours=4)
    listed(server, tool("a"), hours=5)
    assert versions(server, "a") == [
        ("first", []),
        ("words", []),
        ("compatible", ["Argument “q” was added."]),
        ("breaking", ["Argument “q” is now required."]),
        ("removed", []),
        ("returned", ["The change since then is breaking.", "Argument “q” was removed."]),
    ]


def test_what_comes_back_as_it_was_has_nothing_to_tell(server: Server) -> None:
    listed(server, tool("a"))
    listed(server, hours=1)
    listed(server, tool("a"), hours=2)
    assert versions(server, "a")[1:] == [("removed", []), ("returned", [])]
    assert server.definitions.get(key="a").versions.get(change="removed").body == ""


def test_counts_name_what_they_count(server: Server) -> None:
    first = listed(server, tool("a"), tool("b"))
    assert (first.first, first.added_names) == (True, ("a", "b"))
    needed = {"type": "object", "properties": {"q": {}}, "required": ["q"]}
    again = listed(server, tool("a", inputSchema=needed), tool("c"), hours=1)
    assert again == Counts(1, 1, 1)
    assert not again.first
    named = again.added_names, again.changed_names, again.removed_names, again.breaking_names
    assert named == (("c",), ("a",), ("b",), ("a",))


def test_a_reading_knows_beforehand_whether_anything_is_to_be_stored(server: Server) -> None:
    listed(server, tool("a"), tool("b"))
    assert not read_listing(shared(server), DefinitionKind.TOOL, [tool("a"), tool("b")]).differs
    for items in ([tool("b"), tool("a")], [tool("a")], [tool("a"), tool("b", title="B")], []):
        assert read_listing(shared(server), DefinitionKind.TOOL, items).differs


def test_a_judgement_of_another_version_than_the_stored_one_is_not_believed(server: Server) -> None:
    listed(server, tool("a"))
    needed = {"type": "object", "properties": {"q": {}}, "required": ["q"]}
    late = read_listing(shared(server), DefinitionKind.TOOL, [tool("a", description="new")])
    listed(server, tool("a", inputSchema=needed), hours=1)
    store(shared(server), late, NOW + timedelta(hours=2))
    assert versions(server, "a")[-1] == ("breaking", ["Argument “q” was removed."])


def test_a_list_that_is_only_in_another_order_has_no_new_versions(server: Server) -> None:
    listed(server, tool("a"), tool("b"))
    assert not listed(server, tool("b"), tool("a"), hours=1)
    assert [row.key for row in definitions(server, DefinitionKind.TOOL)] == ["b", "a"]
    assert [row.versions.count() for row in server.definitions.all()] == [1, 1]


def test_items_without_a_name_and_doubles_are_left_out(server: Server) -> None:
    odd: list[Any] = [{}, {"name": 7}, {"name": ""}, tool("a", description="first"), tool("a", description="second")]
    assert listed(server, *odd) == Counts(added=1)
    assert definitions(server, DefinitionKind.TOOL).get().description == "first"


def test_what_no_database_or_canonical_json_holds_is_kept_all_the_same(server: Server) -> None:
    odd = tool("nul \0", description="lone \ud800", inputSchema={"maximum": 2**70, "minimum": 10**16, "default": "\0"})
    assert listed(server, odd) == Counts(added=1)
    assert not listed(server, odd, hours=1)
    row = definitions(server, DefinitionKind.TOOL).get()
    assert (row.key, row.description) == ("nul \ufffd", "lone \ufffd")
    assert "\0" not in row.body


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": 2**60}) == digest_of({"b": 2**60, "a": 1})


def test_kinds_have_keys_of_their_own(server: Server) -> None:
    template = {"uriTemplate": "file:///{path}", "name": "n"}
    assert store_listing(server, DefinitionKind.RESOURCE_TEMPLATE, [template], NOW) == Counts(added=1)
    assert store_listing(server, DefinitionKind.RESOURCE, [{"uri": "file:///a", "name": "n"}], NOW) == Counts(added=1)
    assert [row.key for row in definitions(server, DefinitionKind.RESOURCE)] == ["file:///a"]


def test_programs_keep_the_version_from_before_a_breaking_change_until_it_is_approved(server: Server) -> None:
    wide = {"type": "object", "properties": {"q": {"type": "string"}}}
    needed = wide | {"required": ["q"]}

    def waits() -> tuple[str, str]:
        row = server.definitions.get(key="a")
        return row.approved_digest, row.digest

    listed(server, tool("a", inputSchema=wide))
    first = waits()[1]
    listed(server, tool("a", inputSchema=wide, description="new"), hours=1)
    assert waits()[0] == ""
    worded = waits()[1]
    listed(server, tool("a", inputSchema=needed), hours=2)
    assert waits()[0] == worded
    listed(server, tool("a", inputSchema=needed, description="later"), hours=3)
    assert waits()[0] == worded != first
    listed(server, tool("a", inputSchema=wide, description="new"), hours=4)
    assert waits() == ("", worded)
    listed(server, hours=5)
    listed(server, tool("a", inputSchema=needed), hours=6)
    assert waits()[0] == worded


@pytest.mark.django_db(transaction=True)
def test_of_many_versions_the_newest_are_kept_and_the_one_that_programs_may_call(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "VERSIONS_KEPT", 5)
    listed(server, tool("a"), tool("quiet"))
    needs = {"type": "object", "properties": {"q": {}}, "required": ["q"]}
    for hour in range(1, 20):
        listed(server, tool("a", inputSchema=needs, description=f"at {hour}"), tool("quiet"), hours=hour)
    before = server.definitions.get(key="a")
    kept = list(before.versions.values_list("pk", flat=True)[:5])
    assert trimming.trim_all() == 14
    assert server.definitions.get(key="a").digest == before.digest
    first = before.versions.get(digest=before.approved_digest)
    assert list(before.versions.values_list("pk", flat=True)) == [*kept, first.pk]
    assert versions(server, "quiet") == [("first", [])]
    assert trimming.trim_all() == 0


@pytest.mark.django_db(transaction=True)
def test_of_many_removed_definitions_those_offered_longest_are_kept_and_those_that_wait_for_approval(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "REMOVED_KEPT", 2)
    needs = {"type": "object", "properties": {"q": {}}, "required": ["q"]}
    listed(server, tool("waits"), tool("stays"), tool("veteran"))
    listed(server, tool("waits", inputSchema=needs), tool("stays"), tool("veteran"), hours=1)
    for hour in range(2, 8):
        listed(server, tool(f"at {hour}"), tool("stays"), hours=hour)
    assert trimming.trim_all() == 4
    kept = {"waits", "stays", "veteran", "at 6", "at 7"}
    assert set(server.definitions.values_list("key", flat=True)) == kept
    assert set(DefinitionVersion.objects.values_list("definition__key", flat=True)) == kept
    assert server.definitions.get(key="waits").approved_digest
    assert listed(server, tool("at 2"), hours=9).added == 1, "its history begins again"


@pytest.mark.usefixtures("on_postgres")
@pytest.mark.django_db(transaction=True)
def test_old_versions_and_removed_definitions_go_on_postgresql_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "VERSIONS_KEPT", 2)
    monkeypatch.setattr(trimming, "REMOVED_KEPT", 1)
    server = Server.objects.create(slug="s", name="S", transport="stdio")
    for hour in range(5):
        listed(server, tool("a", description=f"at {hour}"), tool(f"at {hour}"), hours=hour)
    assert trimming.trim_all() == 3 + 3
    assert set(server.definitions.values_list("key", flat=True)) == {"a", "at 3", "at 4"}
    assert server.definitions.get(key="a").versions.count() == 2


def test_reading_a_list_loads_nothing_of_what_was_removed_long_ago(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    made = Definition.from_db.__func__  # type: ignore[attr-defined]  # a class method

    def from_db(cls: Any, *given: Any) -> Definition:
        row: Definition = made(cls, *given)
        loaded.append(row.key)
        return row

    listed(server, *[tool(f"old {number}") for number in range(50)])
    listed(server, tool("a"), hours=1)
    monkeypatch.setattr(Definition, "from_db", classmethod(from_db))
    with CaptureQueriesContext(connection) as queries:
        found = read_listing(shared(server), DefinitionKind.TOOL, [tool("a"), tool("old 7", description="back")])
    assert sorted(loaded) == ["a", "old 7"]
    assert list(found.checked) == ["old 7"]
    assert len(queries) <= 3
    loaded.clear()
    assert listed(server, tool("a"), tool("old 7"), hours=2) == Counts(changed=1)
    assert set(loaded) == {"a", "old 7"}


def test_a_list_that_was_empty_for_a_while_is_not_the_first_one(server: Server) -> None:
    assert listed(server, tool("a")).first
    listed(server, hours=1)
    assert not listed(server, tool("b"), hours=2).first
