"""The pages name each feature that a server does not offer, with the reason."""

from typing import Any

import pytest

from servers.models import Server
from sessions.catalog.not_offered import missing, why
from sessions.models import McpSession

EVERYTHING = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "tasks": {},
}
OURS = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}
ROOT = {"uri": "file:///srv", "name": ""}


def session(
    theirs: dict[str, Any], ours: dict[str, Any] | None = None, revision: str = "2025-11-25", **server: Any
) -> McpSession:
    return McpSession(
        server=Server(**server),
        revision=revision,
        server_capabilities=theirs,
        client_capabilities=OURS if ours is None else ours,
    )


def reasons(found: McpSession) -> dict[str, str]:
    return {row.feature: row.reason for row in missing(found)}


def test_nothing_is_said_before_the_first_connection_nor_of_a_server_that_has_it_all() -> None:
    assert missing(session({}, revision="")) == []
    assert missing(session(EVERYTHING)) == []


def test_what_was_not_declared_is_named_with_the_capability() -> None:
    found = reasons(session({"tools": {}, "resources": {"subscribe": False}}))
    assert found["Prompts"] == "The server did not declare prompts."
    assert found["Tool list changes"] == "The server did not declare tools.listChanged."
    assert found["Resource subscriptions"] == "The server did not declare resources.subscribe."


def test_a_part_is_not_said_again_where_the_whole_is_missing() -> None:
    assert "Prompt list changes" not in reasons(session({}))


@pytest.mark.parametrize(
    ("revision", "feature", "reason"),
    [
        ("2025-06-18", "Tasks", "Not supported in revision 2025-06-18."),
        ("2026-07-28", "Tasks", "The server did not declare the tasks extension."),
        ("2025-03-26", "Elicitation", "Not supported in revision 2025-03-26."),
    ],
)
def test_what_a_revision_lacks_is_not_blamed_on_the_server(revision: str, feature: str, reason: str) -> None:
    assert reasons(session({}, {}, revision))[feature] == reason


def test_the_oldest_revision_needs_no_declaration_for_completion() -> None:
    assert "Argument completion" not in reasons(session({}, revision="2024-11-05"))


@pytest.mark.parametrize(
    ("roots", "revision", "words"),
    [
        ([], "2025-11-25", "No roots are set"),
        ([ROOT], "2025-11-25", "declared on the next connection"),
        ([], "2026-07-28", "No roots are set"),
        ([ROOT], "2026-07-28", None),  # a modern server receives the roots with the next request
    ],
)
def test_roots_say_whether_a_setting_or_a_reconnect_is_missing(
    roots: list[dict[str, str]], revision: str, words: str | None
) -> None:
    reason = reasons(session({}, {}, revision, roots=roots)).get("Roots")
    assert reason is None if words is None else words in str(reason)


def test_an_empty_list_says_why_only_where_the_declaration_explains_it() -> None:
    assert why(session({}), "prompts") == "The server did not declare prompts."
    assert why(session(EVERYTHING), "prompts") == ""
    assert why(None, "prompts") == ""


@pytest.mark.parametrize("feature", ["Sampling", "Elicitation"])
def test_what_a_server_cannot_ask_is_said_with_the_switch_that_decides(feature: str) -> None:
    switch = f"answers_{feature.lower()}"
    off, on = session(EVERYTHING, {}, **{switch: False}), session(EVERYTHING, {}, **{switch: True})
    assert reasons(off)[feature] == "Turned off under Settings, so it is not declared."
    assert "declared on the next connection" in reasons(on)[feature]


def test_a_capability_that_is_declared_as_no_object_is_named_as_such() -> None:
    declared = session({"tools": True, "prompts": [], "resources": {}})
    words = "The server declared tools as true, not as an object, so it counts as undeclared."
    assert why(declared, "tools") == words
    assert {one.feature: one.reason for one in missing(declared)}["Tools"] == words
    assert why(declared, "prompts").startswith("The server declared prompts as [], not")
    assert why(declared, "resources") == ""
