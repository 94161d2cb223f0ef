"""Error codes are named by the negotiated revision. Codes with several meanings are labelled 'commonly …'."""

import pytest

from sessions.calls.rpc_codes import COMMON, DEFINED, name_of
from sessions.mcp.core.versions import LEGACY, MODERN, REVISIONS


@pytest.mark.parametrize("revision", ["", *REVISIONS])
def test_the_codes_of_json_rpc_mean_the_same_in_every_revision(revision: str) -> None:
    assert [name_of(code, revision) for code in (-32700, -32600, -32601, -32602, -32603)] == [
        "Parse error",
        "Invalid request",
        "Method not found",
        "Invalid params",
        "Internal error",
    ]


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_modern_code_has_its_name_in_the_modern_revision_only(code: int) -> None:
    names = {revision: name_of(code, revision) for revision in REVISIONS}
    assert all(not names[revision].startswith("Server error") for revision in MODERN)
    assert all(names[revision].startswith("Server error, not in this revision") for revision in LEGACY)


def test_resource_not_found_is_a_legacy_code_and_only_commonly_that_in_the_modern_revision() -> None:
    others = "permission denied or server not initialized"
    assert {name_of(-32002, revision, "resources/read") for revision in LEGACY} == {
        f"Resource not found (some servers mean {others})"
    }
    assert name_of(-32002, MODERN[0], "resources/read") == (
        "Server error, commonly resource not found, permission denied or server not initialized"
    )


@pytest.mark.parametrize("revision", ["", *REVISIONS])
@pytest.mark.parametrize(
    ("code", "method", "meant"),
    [
        (-32002, "tools/call", "resource not found, permission denied, tool failed or server not initialized"),
        (-32002, "prompts/get", "permission denied or server not initialized"),
        (-32003, "tools/call", "rate limit or missing client capability (drafts of 2026-07-28)"),
        (-32003, "prompts/get", "rate limit, prompt not found or missing client capability (drafts of 2026-07-28)"),
        (-32004, "resources/read", "resource not found or unsupported protocol version (drafts of 2026-07-28)"),
        (-32004, "prompts/get", "unsupported protocol version (drafts of 2026-07-28)"),
    ],
)
def test_a_code_with_several_meanings_names_all_that_its_method_may_mean(
    code: int, method: str, meant: str, revision: str
) -> None:
    assert name_of(code, revision, method) == f"Server error, commonly {meant}"


def test_url_elicitation_required_belongs_to_one_revision() -> None:
    named = [revision for revision in REVISIONS if name_of(-32042, revision) == "URL elicitation required"]
    assert named == ["2025-11-25"]
    assert "2025-11-25" in name_of(-32042, "2025-06-18")


@pytest.mark.parametrize("code", [-32000, -32001, -32003, -32004])
@pytest.mark.parametrize("revision", ["", *REVISIONS])
def test_a_code_with_several_meanings_is_said_to_mean_them_commonly_and_never_surely(code: int, revision: str) -> None:
    assert name_of(code, revision).startswith("Server error, commonly ")
    assert " or " in name_of(code, revision)


def test_without_a_revision_a_code_has_the_name_that_some_revision_gives_it() -> None:
    assert {code.name for code in DEFINED} == {name_of(code.code).partition(" (some")[0] for code in DEFINED}


def test_what_no_one_defined_says_so() -> None:
    assert name_of(-32050) == "Server error, meaning chosen by the server"
    assert name_of(-32500) == "Reserved by JSON-RPC"
    assert name_of(-1) == name_of(404) == "The server's own code"


def test_every_meaning_has_a_source_that_can_be_opened() -> None:
    sources = [code.source for code in DEFINED] + [use for common in COMMON for use in common.uses]
    assert all(source.url.startswith("https://") and source.words for source in sources)
    assert len({code.code for code in DEFINED}) == len(DEFINED)
