"""Reading the text: what is accepted, and how each mistake is named without quoting what may be a secret."""

import json

import pytest
from django.core.exceptions import ValidationError

from servers.domain.importing.document import MAX_BYTES, MAX_SERVERS, read

CANARY = "canary-secret-44e1"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"mcpServers": {"a": {"command": "x"}}}', ["a"]),
        ('\ufeff\n{"mcpServers": {"a": {"command": "x"}}}', ["a"]),
        ('{"servers": {"a": {"url": "https://x/"}}, "inputs": []}', ["a"]),
        ('{"mcp": {"servers": {"a": {"url": "https://x/"}}}, "editor.fontSize": 12}', ["a"]),
        ('{"a": {"command": "x"}, "b": {"url": "https://x/"}}', ["a", "b"]),
        ('"a": {"command": "x"},\n"b": {"url": "https://x/"},\n', ["a", "b"]),
        ('{"command": "npx", "args": ["-y", "@acme/files@1.2"]}', ["files"]),
        ('{"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer x"}}', ["mcp.example.com"]),
        ('{"url": "https://ada:pw@mcp.example.com/mcp"}', ["mcp.example.com"]),
        ("// mine\n{'mcpServers': {a: {command: 'x',},},}", ["a"]),
        ('[mcp_servers.a]\ncommand = "x"\n', ["a"]),
        ('mcp_servers."a b" = { command = "x" }', ["a b"]),
    ],
    ids=range(12),
)
def test_every_shape_names_its_servers(text: str, names: list[str]) -> None:
    assert [name for name, _ in read(text).servers] == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Paste a configuration"),
        ("   \n", "Paste a configuration"),
        ('{"mcpServers": {}}', "There is no server"),
        ('{"mcpServers": ["a"]}', "mcpServers is an object"),
        ('{"mcpServers": {"a": 1}, "mcpServers": {}}', "stands twice in this file"),
        ('{"a": {"command": "x"}, "a": {"command": "y"}}', "“a” stands twice"),
        ('{"theme": "dark"}', "No servers were found"),
        ('{"mcpServers": {"a": {"token": "%s"}', "line 1, column"),
        ('{"mcpServers": {"a": NaN}}', "no JSON"),
        ('{"mcpServers": {"a": %s}}' % ("9" * 5000), "a number that cannot be read"),
        ('{"a":' * 50_000, "nested too deeply"),
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("[mcp_servers.a]\ntoken = '%s", "neither JSON nor TOML"),
        ("a" + ".a" * 30_000 + " = 1", "as TOML it is too large"),
        (json.dumps({"mcpServers": {f"s{n}": {} for n in range(MAX_SERVERS + 1)}}), "At most 200 servers"),
        ('{"a": "%s"}' % ("x" * MAX_BYTES), "At most 1 MiB"),
        ("// c\n" + '{"a": "%s"}' % ("x" * 70_000), "With comments, at most 64 KiB"),
    ],
    ids=range(17),
)
def test_a_mistake_is_named_and_nothing_of_the_text_is_quoted(text: str, words: str) -> None:
    text = text.replace("%s", CANARY)
    with pytest.raises(ValidationError) as caught:
        read(text)
    (said,) = caught.value.messages
    assert words in said
    assert CANARY not in said
    assert len(said) < 200


@pytest.mark.parametrize(
    "text",
    [
        "{" + "/*" * 30_000,
        '{"a":1,' + " " * 60_000 + "x",
        '"' + '\\"' * 30_000,
        "{" + "a" * 60_000,
        "{" + '"a":' * 15_000,
    ],
    ids=["comments", "blanks", "quotes", "name", "colons"],
)
def test_text_made_to_be_slow_is_refused(text: str) -> None:
    """It would hang here if a reader went over the text again and again."""
    with pytest.raises(ValidationError):
        read(text)
