"""Single configuration entries are read correctly: spellings, placeholders, sealed values, refusals."""

import json
from typing import Any

import pytest

from servers.enums import TransportKind
from servers.registration.importing.document import ImportedDocument, Input, read
from servers.registration.importing.entries import Entry, parse

pytestmark = pytest.mark.django_db


def entry(raw: Any, typed: dict[str, str] | None = None, **inputs: Input) -> Entry:
    return parse(ImportedDocument("", [("a", raw)], inputs=inputs), "a", raw, typed)


def values(found: Entry) -> dict[str, str]:
    assert found.registration is not None, found.problems
    return {
        value.name: "needed" if value.needed else "sealed" if value.secret else value.text()
        for value in found.registration.values
    }


@pytest.mark.parametrize(
    ("raw", "transport"),
    [
        ({"command": "npx", "args": ["-y", "x"]}, TransportKind.STDIO),
        ({"command": ["npx", "-y", "x"]}, TransportKind.STDIO),
        ({"type": "stdio", "command": "npx", "url": "https://x.example/"}, TransportKind.STDIO),
        ({"url": "https://x.example/mcp"}, TransportKind.AUTO_HTTP),
        ({"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer x"}}, TransportKind.AUTO_HTTP),
        ({"url": "https://x.example/mcp", "transport": "streamable-http"}, TransportKind.STREAMABLE_HTTP),
        ({"url": "https://x.example/mcp", "type": "streamableHttp"}, TransportKind.STREAMABLE_HTTP),
        ({"url": "https://x.example/mcp", "type": "streamable_http"}, TransportKind.STREAMABLE_HTTP),
        ({"url": "https://x.example/mcp", "transportType": "HTTP"}, TransportKind.AUTO_HTTP),
        ({"serverUrl": "https://x.example/sse", "type": "sse"}, TransportKind.HTTP_SSE),
        ({"server_url": "https://x.example/mcp"}, TransportKind.AUTO_HTTP),
        ({"httpUrl": "https://x.example/mcp"}, TransportKind.STREAMABLE_HTTP),
        ({"url": "wss://x.example/ws"}, TransportKind.WEBSOCKET),
        ({"type": "websocket", "url": "wss://x.example/ws"}, TransportKind.WEBSOCKET),
    ],
    ids=range(14),
)
def test_each_spelling_of_a_transport_is_understood(raw: dict[str, Any], transport: TransportKind) -> None:
    found = entry(raw)
    assert (found.problems, found.registration and found.registration.transport) == ((), transport)


@pytest.mark.parametrize(
    ("name", "text", "becomes"),
    [
        ("Authorization", "Bearer abc", "sealed"),
        ("Authorization", "Bearer ${env:TOKEN}", "Bearer ${TOKEN}"),
        ("Authorization", "${TOKEN}", "${TOKEN}"),
        ("Authorization", "Bearer ${TOKEN:-abc}", "Bearer ${TOKEN}"),
        ("Authorization", "${file:/run/secrets/token}", "${file:/run/secrets/token}"),
        ("Authorization", "Bearer ${input:token}", "needed"),
        ("Authorization", "Bearer <token>", "needed"),
        ("X-API-Key", "YOUR_API_KEY", "needed"),
        ("X-API-Key", "", "needed"),
        ("X-Region", "eu-west-1", "eu-west-1"),
        ("X-Region", "", ""),
        ("X-Path", "${workspaceFolder}/x", "needed"),
        ("X-Any", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "sealed"),
        ("X-Any", "postgres://ada:pw@db.example/orders", "sealed"),
        ("X-Any", "https://docs.example/a/long/path/to/somewhere", "https://docs.example/a/long/path/to/somewhere"),
        ("X-Any", "@modelcontextprotocol/server-filesystem", "@modelcontextprotocol/server-filesystem"),
        ("X-Any", "9f86d081884c7d659a2feaa0c55ad015", "sealed"),
    ],
    ids=range(17),
)
def test_a_value_is_sealed_kept_as_a_reference_or_needed(name: str, text: str, becomes: str) -> None:
    found = entry({"url": "https://x.example/mcp", "headers": {name: text}}, token=Input())
    assert values(found) == {name: becomes}


def test_a_header_that_mcpadmin_sets_itself_is_left_out_with_a_note() -> None:
    given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-Region": "eu"}
    for raw in ({"headers": given}, {"requestOptions": {"headers": given}}):
        found = entry({"url": "https://x.example/mcp", **raw})
        assert (found.problems, values(found)) == ((), {"X-Region": "eu"})
        assert found.notes == ("Ignored: Content-Type, Accept, which mcpadmin sets on each request.",)


@pytest.mark.parametrize("name", ["Host", "Origin", "Proxy-Authorization", "Sec-WebSocket-Protocol"])
def test_a_header_that_says_what_is_reached_or_as_whom_is_refused_rather_than_left_out(name: str) -> None:
    (problem,) = entry({"url": "https://x.example/mcp", "headers": {name: "internal"}}).problems
    assert f"{name} is set by mcpadmin on each request" in problem


def test_variables_that_codex_passes_on_are_names_or_tables() -> None:
    passed = ["A", {"name": "B", "source": "local"}, {"name": "C", "source": "remote"}]
    found = entry({"command": "npx", "args": ["x"], "env_vars": passed})
    assert (found.problems, values(found)) == ((), {"A": "${A}", "B": "${B}", "C": "${C}"})
    assert found.notes == ("The file takes C from a remote environment. Here the worker provides it.",)


@pytest.mark.parametrize("wrong", [{"source": "local"}, {"name": ["B"]}, ["B"]], ids=range(3))
def test_a_passed_on_variable_without_a_name_is_refused(wrong: Any) -> None:
    found = entry({"command": "npx", "args": ["x"], "env_vars": ["A", wrong]})
    assert found.problems == ("envVars must be a list of names, or of objects with a name.",)


def test_a_value_that_was_entered_is_put_in_and_sealed() -> None:
    raw = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${input:token}"}}
    found = entry(raw, {"input:token": "t-1"}, token=Input("Token", secret=True))
    assert found.registration is not None
    (value,) = found.registration.values
    assert (value.secret, value.text(), value.needed) == (True, "Bearer t-1", False)


def test_a_value_in_an_argument_is_needed_before_anything_is_stored() -> None:
    raw = {"command": "uvx", "args": ["x", "--region=${input:region}"]}
    found = entry(raw, None, region=Input("Region", "eu"))
    assert [(need.key, need.label, need.default, need.required) for need in found.needs] == [
        ("input:region", "Region", "eu", True)
    ]
    assert found.unmet({})
    filled = entry(raw, {"input:region": "us"})
    assert filled.registration is not None
    assert filled.registration.arguments == ["x", "--region=us"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"command": 5}, "command must be a string"),
        ({"command": "x", "args": 7}, "args must be a list"),
        ({"command": "x", "args": [{}]}, "args must be a list of strings"),
        ({"command": "x", "env": "A"}, "env must be an object"),
        ({"command": "x", "env": {"A": {}}}, "The value of A must be a string"),
        ({"command": "x", "env": {"A-B": "1"}}, "not a valid variable name"),
        ({"command": "x", "disabled": "yes"}, "disabled must be true or false"),
        ({"url": "https://x.example/", "URL": "https://y.example/"}, "same setting"),
        ({"url": "https://x.example/", "headers": {"A": "1", "a": "2"}}, "set twice"),
        ({"url": "https://x.example/", "mcpadmin": {"limits": {"depth": "32"}}}, "has an unexpected value"),
        ({"url": "https://x.example/", "mcpadmin": {"limits": {"depth": 5000}}}, "Nesting"),
        ({"url": "https://x.example/", "mcpadmin": {"secrets": "all"}}, "must be a list of names"),
        ({"url": "https://x.example/", "mcpadmin": {"environment": "moon"}}, "has an unexpected value"),
        ({"command": "a\u0000b"}, "NUL"),
        ({"command": "a\ud800b"}, "invalid Unicode"),
        ({"command": "a" * 1001}, "Command"),
        ({"url": "https://x.example/#part"}, "part after #"),
        ({"command": 'npx "x'}, "quotes"),
    ],
    ids=range(18),
)
def test_what_is_wrong_is_said_in_words(raw: dict[str, Any], words: str) -> None:
    assert words in " ".join(entry(raw).problems)


@pytest.mark.parametrize(
    ("raw", "typed", "becomes"),
    [
        ({"command": "x", "args": ["--host=<host>"]}, {"<host>": "db"}, ["--host=db"]),
        ({"command": "x", "args": ["<a>", "<b>", "<a>"]}, {"<a>": "1", "<b>": "2"}, ["1", "2", "1"]),
        ({"command": "x", "args": ["/path/to/a"]}, {"argument 1: /path/to/a": "/path/to/a"}, ["/path/to/a"]),
        ({"command": "x", "args": ["-k", "YOUR_KEY"]}, {"argument 2: YOUR_KEY": "k"}, ["-k", "k"]),
    ],
    ids=range(4),
)
def test_an_example_value_of_an_argument_must_be_filled_in(
    raw: dict[str, Any], typed: dict[str, str], becomes: list[str]
) -> None:
    assert {need.key for need in entry(raw).unmet({})} == typed.keys()
    found = entry(raw, typed)
    assert found.registration is not None
    assert (found.registration.arguments, found.unmet(typed)) == (becomes, [])


def test_an_example_value_of_a_header_keeps_the_words_around_it() -> None:
    raw = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer YOUR_TOKEN"}}
    (need,) = entry(raw).needs
    assert (need.key, need.label, need.printed, need.secret) == (
        "value:Authorization",
        "Authorization",
        "YOUR_TOKEN",
        True,
    )
    found = entry(raw, {need.key: "t-1"})
    assert found.registration is not None
    assert [value.text() for value in found.registration.values] == ["Bearer t-1"]


def test_what_mcpadmin_exported_has_no_example_values() -> None:
    assert entry({"command": "x", "args": ["/path/to/a"], "mcpadmin": {"slug": "a"}}).needs == ()


def test_a_script_keeps_its_own_references_for_the_shell() -> None:
    found = entry({"command": "sh", "args": ["-c", "exec x --key ${KEY:-none} $${A}"], "env": {"KEY": "k"}})
    assert found.registration is not None
    assert found.registration.arguments == ["-c", "exec x --key $${KEY:-none} $${A}"]
    assert found.needs == ()


@pytest.mark.parametrize(
    ("command", "before"),
    [
        ("bash", ["-lc"]),
        ("bash", ["-l", "-c"]),
        ("bash", ["-euo", "pipefail", "-c"]),
        ("/usr/bin/env", ["bash", "-ic"]),
        ("env", ["LEVEL=1", "sh", "-c"]),
    ],
)
def test_a_script_is_known_behind_other_options_and_env(command: str, before: list[str]) -> None:
    script = "cd $HOME && run ${X} --key ${API_KEY}"
    found = entry({"command": command, "args": [*before, script], "env": {"API_KEY": "abc"}})
    assert found.registration is not None
    assert found.registration.arguments == [*before, "cd $HOME && run $${X} --key $${API_KEY}"]
    assert found.needs == ()


def test_the_arguments_of_a_script_in_a_file_are_no_script() -> None:
    found = entry({"command": "bash", "args": ["/srv/run.sh", "-c", "${LEVEL}"]})
    assert found.registration is not None
    assert found.registration.arguments == ["/srv/run.sh", "-c", "${LEVEL}"]


@pytest.mark.parametrize("name", ["My  Server", " My\nServer\t"])
def test_a_name_is_one_line_with_single_blanks(name: str) -> None:
    found = parse(ImportedDocument("", []), name, {"command": "x"})
    assert (found.problems, found.registration and found.registration.name) == ((), "My Server")


def test_an_escaped_reference_is_left_as_it_is() -> None:
    found = entry({"command": "x", "args": ["$${HOME}"]})
    assert found.registration is not None
    assert (found.registration.arguments, found.needs) == (["$${HOME}"], ())


def test_a_name_that_is_too_long_is_refused_and_cut() -> None:
    found = parse(ImportedDocument("", []), "n" * 500, {"command": "x"})
    assert found.problems
    assert len(found.name) < 100


def test_a_date_of_toml_is_no_value() -> None:
    document = read('[mcp_servers.a]\ncommand = "x"\nsince = 2026-01-01\n')
    assert "not text" in parse(document, *document.servers[0]).problems[0]


@pytest.mark.parametrize("text", [json.dumps("x" * 100), "null", "7", "[]", "true"])
def test_an_entry_that_is_no_object_is_refused(text: str) -> None:
    assert entry(json.loads(text)).problems


def test_a_secret_that_is_asked_for_in_an_argument_is_said_to_be_stored_in_plain_text() -> None:
    asked = {"id": "dsn", "type": "promptString", "description": "Connection", "password": True}
    entry = {"command": "db", "args": ["${input:dsn}"]}
    document = read(json.dumps({"servers": {"a": entry}, "inputs": [asked]}))
    assert any("stored in plain text" in note for note in parse(document, *document.servers[0]).notes)
    plain = read(json.dumps({"servers": {"a": entry}, "inputs": [asked | {"password": False}]}))
    assert not any("stored in plain text" in note for note in parse(plain, *plain.servers[0]).notes)
