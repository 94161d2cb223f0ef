"""What the body of an HTTP refusal says, and which credential or host it asks for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.mcp.core.errors import Fault
from sessions.mcp.core.refusals import (
    READ_BYTES,
    SHOWN_BYTES,
    header_asked_for,
    names_lost_session,
    recognised,
    with_words,
    without_words,
    words_in,
)


@pytest.mark.parametrize(
    ("body", "media", "words"),
    [
        (b"Invalid Host header", "text/plain", "Invalid Host header"),
        (b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Invalid Host: x"},"id":null}', "application/json", "Invalid Host: x"),
        (b'{"error":"invalid_token","error_description":"No token"}', "application/json", "No token"),
        (b'{"detail":"Not authenticated"}', "application/json", "Not authenticated"),
        (b'{"error":"missing_key"}', "application/json", "missing_key"),
        (b'{"code":17}', "application/json", '{"code":17}'),
        (b'{"broken', "application/json", '{"broken'),
        (b"<html><head><title>403</title><style>a{}</style></head><body><h1>Forbidden</h1>\n by\tnginx</body>", "text/html", "403 Forbidden by nginx"),
        (b"", "text/plain", ""),
        (b"\xff\xfe\x00binary", "image/png", ""),
        (b"   two\r\n lines ", "", "two lines"),
    ],
)  # fmt: skip
def test_the_words_of_a_body_are_its_sentence_in_one_line(body: bytes, media: str, words: str) -> None:
    assert words_in(body, media) == words


@pytest.mark.parametrize("media", ["application/json", "text/plain", ""])
@pytest.mark.parametrize(
    "body",
    ["{}", "[]", "null", '""', " { }\n", '" "', "[{}]", "[null]", '{"error":{}}', '{"message":""}', '{"detail":null}'],
)
def test_a_body_of_empty_json_says_nothing(body: str, media: str) -> None:
    assert words_in(body.encode(), media) == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('"Key expired"', "Key expired"),
        ('["Key expired"]', '["Key expired"]'),
        ('{"key_expired":null}', '{"key_expired":null}'),
        ("0", "0"),
        ("false", "false"),
        ('"cut off', '"cut off'),
    ],
)
def test_a_short_json_that_says_something_is_shown(body: str, words: str) -> None:
    assert words_in(body.encode(), "application/json") == words


def test_at_most_two_kibibytes_are_shown_and_no_token_is_cut_in_the_middle() -> None:
    secret = "s3cret-" + "x" * 60
    body = ("word " * 402 + secret + " tail" * 1000).encode()  # the limit cuts the secret
    assert SHOWN_BYTES - len(secret) < len("word " * 402) < SHOWN_BYTES
    words = words_in(body[:READ_BYTES], "text/plain")
    assert len(words.encode()) <= SHOWN_BYTES + 4
    assert words.endswith("word …")
    assert "s3cret" not in words


def test_a_body_without_any_break_keeps_only_its_beginning() -> None:
    assert len(words_in(b"x" * READ_BYTES, "text/plain")) < SHOWN_BYTES


def test_nested_json_does_not_break_the_reading() -> None:
    deep = b'{"error":' * 5_000
    assert words_in(deep, "application/json").startswith('{"error":')
    assert words_in(json.dumps({"error": {"error": {"error": {"error": "x"}}}}).encode(), "application/json")


@pytest.mark.parametrize(
    ("status", "words", "credential", "fault"),
    [
        (421, "Invalid Host header", False, Fault.HOST_REFUSED),  # Python SDK
        (421, "", True, Fault.HOST_REFUSED),
        (403, "Invalid Host: mcp.example.org", True, Fault.HOST_REFUSED),  # TypeScript SDK
        (400, "Invalid host header", False, Fault.HOST_REFUSED),  # Starlette
        (403, "Host not allowed", False, Fault.HOST_REFUSED),
        (403, "Invalid Origin header", False, Fault.ORIGIN_REFUSED),  # Python SDK
        (403, "Invalid Origin: http://a", True, Fault.ORIGIN_REFUSED),  # TypeScript SDK
        (403, "Origin not allowed", True, Fault.ORIGIN_REFUSED),
        (401, "Missing API key", False, Fault.KEY_NEEDED),
        (400, "x-api-key header is required", False, Fault.KEY_NEEDED),
        (403, "No API key provided", False, Fault.KEY_NEEDED),
        (401, "Please provide a valid API token.", False, Fault.KEY_NEEDED),
        (401, "Authorization header required", False, Fault.KEY_NEEDED),
        (401, "Invalid or missing API key", True, None),
        (403, "not for you", False, Fault.ACCESS_REFUSED),
        (403, "", False, Fault.ACCESS_REFUSED),
        (403, "not for you", True, None),
        (400, "Bad Request: Mcp-Session-Id header is required", False, None),
        (400, "Bad Request: No valid session ID provided", False, None),
        (404, "Missing API key", False, None),
        (500, "Invalid Host header", False, None),
    ],
)
def test_guards_and_missing_keys_are_recognised_by_their_words(
    status: int, words: str, credential: bool, fault: Fault | None
) -> None:
    assert recognised(status, words, credential=credential) is fault


@pytest.mark.parametrize(
    "words",
    [
        "Bad Request: No valid session ID provided",  # TypeScript SDK, its usual wiring; Python SDK before 1.13
        "Bad Request: Missing session ID",  # Python SDK
        "Bad Request: Mcp-Session-Id header is required",  # TypeScript SDK
        "Missing Mcp-Session-Id header",
        "Invalid or missing session ID",
        "Invalid session ID: 3f2a-77",
        "Session not found",
        "session not found.",
        "Session has expired",
        "Session not found or expired",
        "Invalid or expired session",
        "Unknown MCP session",
    ],
)
def test_a_missing_session_is_recognised_by_its_words(words: str) -> None:
    assert names_lost_session(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "Bad Request",
        "Session store is down",
        "session_id is required",
        "No active session. Call start_session first.",
        "The browser session was not found",
        "Session not found: log in with the tool login first",
        "Could not open the page: Session not found",
        "Session token not found",
        "No session of the browser",
    ],
)
def test_what_a_tool_says_about_its_own_sessions_is_not_taken_for_a_missing_session(words: str) -> None:
    assert not names_lost_session(words)


@pytest.mark.parametrize("html", [b"<![x y]>", b"<p>&#" + b"1" * 5_000 + b";", b"<p>no</p><![odd[ x ]]>"])
def test_a_page_that_cannot_be_read_says_nothing(html: bytes) -> None:
    assert words_in(html, "text/html") == ""


@given(st.text(alphabet="<>![]&#;x-/?'\" =a1", max_size=60))
def test_any_page_gives_words(html: str) -> None:
    assert isinstance(words_in(html.encode(), "text/html"), str)


def test_the_header_that_the_words_name_is_found() -> None:
    assert header_asked_for("send X-Acme-Key with each request") == "X-Acme-Key"
    assert header_asked_for("x-api-key required") == "x-api-key"
    assert header_asked_for("Missing API key") == ""


def test_what_the_server_said_is_taken_out_again() -> None:
    detail = with_words("It failed.", 'a "quoted" answer') + " The tool may have run."
    assert without_words(detail) == "It failed. The tool may have run."
    assert with_words("It failed.", "") == "It failed."
