"""What pages take from a server's own words."""

from sessions.domain import server_pages


def test_a_description_of_megabytes_is_cut_and_says_so() -> None:
    shown = server_pages.shown("x" * 1_000_000)
    assert len(shown) < 20_000
    assert shown.endswith("(1,000,000 characters in all)")


def test_a_tool_that_destroys_is_not_called_read_only() -> None:
    assert server_pages.hints({"annotations": {"destructiveHint": True}}) == ["destructive"]
    assert server_pages.hints({"annotations": {"readOnlyHint": True, "destructiveHint": True}}) == ["read-only"]
    assert server_pages.hints({"annotations": ["nonsense"]}) == []


def test_levels_are_this_one_and_all_that_are_graver() -> None:
    assert server_pages.levels_from("error") == ["error", "critical", "alert", "emergency"]
    assert server_pages.levels_from("nonsense") == server_pages.LEVELS
