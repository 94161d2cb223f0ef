"""Markdown from servers: which texts are rendered, the output, and the limits."""

import pytest

from servers.kit.markdown import BYTES, looks_like_markdown, render_markdown

MARKDOWN = [
    "# Title", "text\n\n## Part", "- one\n- two", "1. one\n2. two", "```\ncode\n```", "| a | b |\n|---|---|\n| 1 | 2 |",
    "see [docs](https://example.com/)", "this is **important**", "run `make`", "an *emphasised* word",
]  # fmt: skip
PLAIN = [
    "", "Hello, world.", "2026-11-26 12:00:00 INFO started", "a * b * c = d", "#hashtag and #123", "- only one dash",
    "snake_case_name and __init__", "2 ** 3 ** 2", "[INFO] done (see log)", "----------", "C:\\*.txt",
    "[a](javascript:alert(1))", "key: value\nother: value",
]  # fmt: skip


@pytest.mark.parametrize("text", MARKDOWN)
def test_what_looks_like_markdown_is_rendered(text: str) -> None:
    assert looks_like_markdown(text)


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert not looks_like_markdown(text)


def test_a_link_says_where_it_leads_unless_its_text_does() -> None:
    assert "(evil.example)" in (render_markdown("[good.example](https://good.example@evil.example/)") or "")
    assert "(sales@example.com)" in (render_markdown("[write](mailto:sales@example.com)") or "")
    assert "(xn--80ak6aa92e.com)" in (render_markdown("[apple.com](https://\u0430\u0440\u0440\u04cf\u0435.com)") or "")
    assert "dim" not in (render_markdown("<https://example.com/a>") or "dim")


def test_nothing_that_a_model_reads_is_missing_from_the_rendered_text() -> None:
    markup = render_markdown(
        'a [b](https://c.example "in a title") <!-- in a comment -->\n\n[c]: https://d.example (defined)\n\n```py in a fence\nx\n```'
    )
    assert markup is not None
    for words in ("in a title", "in a comment", "in the source only", "in a fence"):
        assert words in markup


@pytest.mark.parametrize(
    "text",
    ["*a* " * (BYTES // 4 + 1), "é*" * (BYTES // 3 + 1), ">" * 60 + " deep"],
    ids=["characters", "bytes", "nesting"],
)
def test_what_is_too_large_or_too_deep_is_not_rendered(text: str) -> None:
    assert render_markdown(text) is None


def test_rendering_ends_when_its_time_is_over() -> None:
    assert render_markdown("**a**", seconds=-1) is None
