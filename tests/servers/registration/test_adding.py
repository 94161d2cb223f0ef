"""The box of *Add server*: what is understood of a URL, a command line or a configuration."""

import json
from typing import Any

import pytest

from servers.enums import TransportKind
from servers.registration.adding.known_servers import REFERENCE_SERVERS, REMOTE_SERVERS, KnownServer, known_server
from servers.registration.adding.reading import Reading, read_source
from servers.secret import Secret

TOKEN = "sk-aaaaaaaaaaaaaaaaaaaaaaa1"


def understood(text: str, **typed: Any) -> tuple[Any, ...]:
    reading = read_source(text)
    found = reading.registration
    assert reading.problem == ""
    assert found is not None
    values = {value.name: value.text() for value in found.values}
    return found.name, found.transport.value, found.url or [found.command, *found.arguments], values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://mcp.linear.app/mcp", ("Linear", "auto_http", "https://mcp.linear.app/mcp", {})),
        ("localhost:3000/mcp", ("localhost:3000", "auto_http", "http://localhost:3000/mcp", {})),
        ("wss://tools.example.com/ws", ("Example", "websocket", "wss://tools.example.com/ws", {})),
        ("uvx mcp-server-time", ("Time", "stdio", ["uvx", "mcp-server-time"], {})),
        (
            "$ npx -y \\\n  @modelcontextprotocol/server-everything",
            ("Everything", "stdio", ["npx", "-y", "@modelcontextprotocol/server-everything"], {}),
        ),
        ("env LEVEL=1 node build/files.js --x", ("Files", "stdio", ["node", "build/files.js", "--x"], {"LEVEL": "1"})),
        (
            f'claude mcp add --transport http sentry https://mcp.sentry.dev/mcp -H "Authorization: Bearer {TOKEN}"',
            ("sentry", "auto_http", "https://mcp.sentry.dev/mcp", {"Authorization": f"Bearer {TOKEN}"}),
        ),
        (
            "claude mcp add -s user air -e LEVEL=1 MODE=b -- npx -y air-mcp --env x",
            ("air", "stdio", ["npx", "-y", "air-mcp", "--env", "x"], {"LEVEL": "1", "MODE": "b"}),
        ),
        (
            """claude mcp add-json weather '{"command": "weather", "args": ["-v"], "env": {"A": "1"}}'""",
            ("weather", "stdio", ["weather", "-v"], {"A": "1"}),
        ),
        (
            """code --add-mcp '{"name": "air", "command": "npx", "args": ["-y", "air-mcp"], "env": {"API_KEY": "abcdef"}}'""",
            ("air", "stdio", ["npx", "-y", "air-mcp"], {"API_KEY": "abcdef"}),
        ),
        ("'/opt/my srv/run'", ("Run", "stdio", ["/opt/my srv/run"], {})),
        ('"/opt/my srv/run" --x', ("Run", "stdio", ["/opt/my srv/run", "--x"], {})),
        ('"one": {"command": "uvx", "args": ["a"]}', ("one", "stdio", ["uvx", "a"], {})),
        (
            "docker run -i --rm -e GITHUB_PERSONAL_ACCESS_TOKEN ghcr.io/github/github-mcp-server",
            (
                "Github",
                "stdio",
                [
                    "docker",
                    "run",
                    "-i",
                    "--rm",
                    "-e",
                    "GITHUB_PERSONAL_ACCESS_TOKEN",
                    "ghcr.io/github/github-mcp-server",
                ],
                {},
            ),
        ),
        ("cmd /c npx -y notes-mcp", ("Notes", "stdio", ["npx", "-y", "notes-mcp"], {})),
        (
            "uvx --with foo mcp-server-git",
            ("Git", "stdio", ["uvx", "--with", "foo", "mcp-server-git"], {}),
        ),
        ("codex mcp add docs --url https://d.example/mcp", ("docs", "auto_http", "https://d.example/mcp", {})),
        (
            "npx @modelcontextprotocol/inspector -e LEVEL=1 node build/weather.js --fast",
            ("Weather", "stdio", ["node", "build/weather.js", "--fast"], {"LEVEL": "1"}),
        ),
        (
            '{"mcpServers": {"one": {"command": "uvx", "args": ["a"]}, "two": {"command": "uvx"}}}',
            ("one", "stdio", ["uvx", "a"], {}),
        ),
        (
            '{"servers": {"v": {"type": "http", "url": "https://v.example/mcp"}}}',
            ("v", "auto_http", "https://v.example/mcp", {}),
        ),
        (
            json.dumps(
                {
                    "name": "io.example/notes",
                    "packages": [{"registryType": "npm", "identifier": "notes-mcp", "version": "1.2.0"}],
                }
            ),
            ("notes", "stdio", ["npx", "-y", "notes-mcp@1.2.0"], {}),
        ),
    ],
)
def test_a_server_is_understood_however_it_is_written(text: str, expected: tuple[Any, ...]) -> None:
    assert understood(text) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Enter a URL"),
        ('npx "unbalanced', "unmatched quotes"),
        ('{"mcpServers":', "Invalid JSON at line 1"),
        ("claude mcp add-json x '{not json}'", "cannot be read"),
        ("code --add-mcp '{not json}'", "cannot be read"),
        ('"/opt/my srv/run', "unmatched quotes"),
    ],
)
def test_what_cannot_be_read_is_said_and_quotes_nothing_of_it(text: str, words: str) -> None:
    reading = read_source(text)
    assert words in reading.problem
    assert reading.registration is None


def test_secrets_are_recognised_and_the_text_that_holds_them_is_not_sent_back() -> None:
    reading = read_source(
        json.dumps({"mcpServers": {"a": {"url": "https://a.example/mcp", "headers": {"X-Key": TOKEN}}}})
    )
    assert reading.registration is not None
    assert isinstance(reading.registration.values[0].value, Secret)
    assert reading.holds_secret
    assert not read_source("https://a.example/mcp").holds_secret
    assert read_source("https://a.example/mcp?api_key=abc").holds_secret
    assert read_source(f"uvx tool --token {TOKEN}").holds_secret


@pytest.mark.parametrize(
    "text",
    [
        f"docker run -i --rm -e NOTION_TOKEN={TOKEN} mcp/notion",
        f"docker run -i --odd -e NOTION_TOKEN={TOKEN} Mcp/Notion",
        f"notion --token {TOKEN}",
        f"notion {TOKEN}",
        f"sh -c 'NOTION_TOKEN={TOKEN} notion'",
        json.dumps(
            {"mcpServers": [{"command": "docker", "args": ["run", "-e", f"NOTION_TOKEN={TOKEN}", "mcp/notion"]}]}
        ),
        json.dumps({"command": "notion", "args": ["--token", TOKEN], "url": ""}),
    ],
)
def test_no_secret_of_a_command_line_becomes_the_name_that_everybody_sees(text: str) -> None:
    found = read_source(text).registration
    assert found is not None
    assert TOKEN[-12:].lower() not in found.name.lower()
    assert "token" not in found.name.lower()


def test_a_url_is_tested_without_asking_and_a_command_or_a_lacking_value_never() -> None:
    assert read_source("https://a.example/mcp").is_testable
    assert not read_source("uvx mcp-server-time").is_testable
    assert not read_source("https://a.example/mcp?key=<your-key>").is_testable
    assert not read_source('{"mcpServers": {"a": {"url": "https://me:secret@a.example/mcp"}}}').is_testable


def test_another_server_of_the_text_is_read_when_it_is_chosen() -> None:
    text = '{"mcpServers": {"one": {"command": "a"}, "two": {"url": "https://b.example/mcp"}}}'
    chosen = read_source(text, 1)
    assert chosen.names == ("one", "two")
    assert chosen.registration is not None
    assert chosen.registration.url == "https://b.example/mcp"
    assert chosen.digest != read_source(text, 0).digest


def filled(server: KnownServer) -> Reading:
    return read_source(server.source, 0, dict.fromkeys(range(len(server.fields)), "/srv/work/graph.jsonl"))


@pytest.mark.parametrize("server", [*REFERENCE_SERVERS, *REMOTE_SERVERS], ids=lambda server: server.key)
def test_each_template_asks_for_its_fields_and_registers_with_them(server: KnownServer) -> None:
    fresh = read_source(server.source)
    assert [need.label for need in fresh.needs] == [one.label for one in server.fields]
    assert fresh.entry is not None
    assert fresh.entry.problems == ()
    ready = filled(server)
    assert ready.unmet == []
    assert ready.entry is not None
    assert ready.entry.problems == ()
    assert ready.registration is not None
    assert ready.registration.name == server.name
    assert server.about.startswith("https://")
    assert server.hint


def test_templates_grant_what_their_server_needs_and_nothing_before_it_is_known() -> None:
    def granted(key: str) -> list[str]:
        server = known_server(key)
        assert server is not None
        assert (read_source(server.source).registration or 0).writable_paths == []  # type: ignore[union-attr]
        return (filled(server).registration or 0).writable_paths  # type: ignore[union-attr]

    assert granted("memory") == ["/srv/work"]
    assert granted("git") == ["/srv/work/graph.jsonl"]
    assert granted("fetch") == []
    assert filled(REMOTE_SERVERS[0]).registration.transport == TransportKind.AUTO_HTTP  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "rest",
    [
        {"b": {"command": "b", "env": {"API_TOKEN": "abc"}}},
        {"b": {"url": "https://b.example/mcp", "headers": {"X-Team": TOKEN}}},
        {"b": {"command": "b", "args": ["--password", "abc"]}},
        {"b": {"url": "https://b.example/mcp?api_key=abc"}},
    ],
)
def test_a_secret_of_a_server_that_was_not_chosen_is_not_sent_back_either(rest: dict[str, Any]) -> None:
    first: dict[str, Any] = {"a": {"url": "https://a.example/mcp"}}
    assert not read_source(json.dumps({"mcpServers": first})).holds_secret
    assert read_source(json.dumps({"mcpServers": first | rest})).holds_secret


def test_a_secret_that_is_ignored_or_is_beside_the_configuration_is_not_sent_back() -> None:
    ignored = {"command": "a", "headers": {"Authorization": f"Bearer {TOKEN}"}}
    assert read_source(json.dumps({"mcpServers": {"a": ignored}})).holds_secret
    beside = f'My token is {TOKEN}:\n\n{{"mcpServers": {{"a": {{"command": "a"}}}}}}'
    assert read_source(beside).holds_secret


def test_text_with_placeholders_alone_is_sent_back() -> None:
    asks = {"API_KEY": "YOUR_API_KEY", "TOKEN": "${input:token}", "AUTH": "Bearer ${env:TOKEN}", "PAT": "<your token>"}
    both = {name: {"command": name, "env": asks} for name in ("a", "b")}
    assert not read_source(json.dumps({"mcpServers": both})).holds_secret


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("""claude mcp add-json "" '{"url": 5}'""", "url must be a string. Neither a command nor a URL is set."),
        ("""claude mcp add-json "" '{"command": "a", "args": null}'""", ""),
        ("""claude mcp add-json a '{"command": "a", "command": "b"}'""", "“command” is defined twice. Remove one."),
        (f"claude mcp add-json a '{'[' * 9_000}'", None),
        ("""claude mcp add-json a '{"a":""" + '{"a":' * 900 + "1" + "}" * 901 + "'", None),
    ],
    ids=["url", "args", "double", "list", "deep"],
)
def test_odd_json_in_a_command_line_is_refused_with_words(line: str, problem: str | None) -> None:
    reading = read_source(line)
    if problem is None:
        assert "cannot be read" in reading.problem
    else:
        assert reading.entry is not None
        assert " ".join(reading.entry.problems) == problem


def test_options_of_a_clients_own_sign_in_are_no_command() -> None:
    line = "claude mcp add --transport http --client-id x --client-secret --callback-port 8080 a https://a.example/mcp"
    assert understood(line) == ("a", "auto_http", "https://a.example/mcp", {})
    line = "codex mcp add a --url https://a.example/mcp --bearer-token-env-var A_TOKEN"
    assert understood(line) == ("a", "auto_http", "https://a.example/mcp", {"Authorization": "Bearer ${A_TOKEN}"})


def test_a_byte_order_mark_before_a_configuration_is_passed_over() -> None:
    assert understood('\ufeff{"mcpServers": {"a": {"command": "b"}}}') == ("a", "stdio", ["b"], {})
