"""The reader accepts every known shape, and names each mistake without quoting text that may be a secret."""

import json

import pytest
from django.core.exceptions import ValidationError

from servers import limits
from servers.registration.importing.document import read
from servers.registration.importing.entries import parse

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
        ('[mcp_servers.a]\r\ncommand = "x"\r\n\r\n[mcp_servers.b]\r\ncommand = "y"\r\n', ["a", "b"]),
        ('# mine\r\n\r\nmcp_servers.a = { command = "x" }\r\n', ["a"]),
        ('Add to `config.toml`:\n\n[mcp_servers.a]\ncommand = "x"\n', ["a"]),
        ("// c\n" + '{"mcpServers": {"a": {"command": "%s"}}}' % ("x" * 70_000), ["a"]),
        ('{"mcpServers": [{"name": "a", "command": "x"}, {"name": "b", "url": "https://x/"}]}', ["a", "b"]),
    ],
    ids=range(17),
)
def test_every_shape_names_its_servers(text: str, names: list[str]) -> None:
    assert [name for name, _ in read(text).servers] == names


@pytest.mark.parametrize("top", [{"user": {"command": "u"}}, {}])
def test_servers_of_projects_are_read_beside_those_of_the_user(top: dict[str, object]) -> None:
    projects = {"/srv/a": {"mcpServers": {"a": {"command": "x"}}}, "/srv/b": {"mcpServers": {"b": {"command": "y"}}}}
    document = read(json.dumps({"mcpServers": top, "projects": projects}))
    assert [name for name, _ in document.servers] == [*top, "a", "b"]
    assert document.dialect.count("mcpServers") == 1


def test_a_list_of_servers_is_read_once_however_it_is_found() -> None:
    inner = {"mcpServers": {"a": {"command": "x"}}}
    for text in ({"mcp": inner}, {"mcp": {"servers": {"a": {"command": "x"}}}}, {"amp": inner}, inner | {"theme": {}}):
        assert [name for name, _ in read(json.dumps(text)).servers] == ["a"], text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Paste a configuration"),
        ("   \n", "Paste a configuration"),
        ('{"mcpServers": {}}', "contains no servers"),
        ('{"mcpServers": ["a"]}', "mcpServers must be an object"),
        ('{"mcpServers": {"a": 1}, "mcpServers": {}}', "is defined twice in this file"),
        ('{"a": {"command": "x"}, "a": {"command": "y"}}', "“a” is defined twice"),
        ('{"theme": "dark"}', "No servers found"),
        ('{"mcpServers": {"a": {"token": "%s"}', "line 1, column"),
        ('{"mcpServers": {"a": NaN}}', "Invalid JSON"),
        ('{"mcpServers": {"a": %s}}' % ("9" * 5000), "a number that cannot be read"),
        ('{"a":' * 50_000, "ested too deeply"),
        ("a = " + "[" * 50_000, "ested too deeply"),
        ("[mcp_servers.a]\ntoken = '%s", "not valid TOML"),
        ("a" + ".a" * 30_000 + " = 1", "too large to be read as TOML"),
        (
            json.dumps({"mcpServers": {f"s{n}": {} for n in range(limits.number("import_servers") + 1)}}),
            "Limit: 200 servers per import. It cannot be changed.",
        ),
        (
            '{"a": "%s"}' % ("x" * limits.number("import_bytes")),
            "Limit: 1 MiB per configuration. It cannot be changed.",
        ),
        ("{a: '%s'}" % ("x" * 17_000), "line 1, column"),
        ("a:\n" + "  - x\n" * 12_000, "too large to be read as YAML"),
        ("a: &a [x, x]\nb: &b [*a, *a]\n", "YAML aliases"),
        ("mcpServers: !!python/object/apply:os.system ['true']", "not valid JSON, TOML or YAML"),
        ("a: [1, 2", "not valid JSON, TOML or YAML"),
        ("mcpServers:\n  ? [a]\n  : b", "not text"),
        ("a:\n  - " + "- " * 200 + "x", "ested too deeply"),
        ("a: " + "[" * 60_000, "ested too deeply"),
        ("```json\n{\n```", "line 1, column"),
    ],
    ids=range(25),
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
        "{" + "/* " * 300_000,
        '{"a":1,' + " " * 600_000 + "x",
        '{"' + '\\"' * 400_000,
        "{" + "a" * 900_000,
        "{" + '"a":' * 200_000,
        "[{}," + "1," * 400_000 + "x]",
        "{" + "..." * 300_000,
        "{" + "," * 900_000,
        "```\n" * 200_000,
        "~~~\n```\n" * 100_000,
        "\n{" * 300_000,
        "k: " + "[" * 60_000,
    ],
    ids=[
        "comments",
        "blanks",
        "quotes",
        "name",
        "colons",
        "array",
        "dots",
        "commas",
        "fences",
        "two fences",
        "objects",
        "yaml",
    ],
)
def test_text_made_to_be_slow_is_refused(text: str) -> None:
    """The test would hang if a reader scanned the text repeatedly."""
    with pytest.raises(ValidationError):
        read(text)


@pytest.mark.parametrize("kind", [["stdio"], {"name": "stdio"}, 1, None])
@pytest.mark.parametrize("frame", ["mcpServers", "extensions"])
def test_a_type_that_is_no_text_is_left_to_the_entry(kind: object, frame: str) -> None:
    document = read(json.dumps({frame: {"a": {"command": "x", "type": kind}}}))
    assert [name for name, _ in document.servers] == ["a"]
    assert ("type must be a string." in parse(document, *document.servers[0]).problems) is (kind is not None)
