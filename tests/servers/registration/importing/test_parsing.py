"""No text keeps the web busy, however it was made: the parsers run in a process that is ended at its limit."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from servers import limits
from servers.registration.importing import parsing
from servers.registration.importing.document import read
from servers.registration.importing.text import OtherValue

JSON5_BLOCK = "```json\n{x: {" + ",".join(f"a{number}:1" for number in range(1_500)) + "}}\n```\n"
BOMBS = {
    "JSON5 array": "[" + ",".join(["{a:1}"] * 33_000) + "]",
    "JSON5 array below its limit": "[" + ",".join(["{a:1}"] * 2_500) + "]",
    "JSON5 in many code blocks": JSON5_BLOCK * 40,
    "JSON5 nested": "{a:" * 2_700 + "1" + "}" * 2_700,
    "JSON objects in a row": '{"a":1} ' * 120_000 + "{a:1}",
    "JSON nested": '{"a":' * 150_000 + "1" + "}" * 150_000,
    "JSON number": '{"a":' + "1" * 900_000 + "}",
    "YAML aliases": "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9)),
    "YAML nested": "\n".join(" " * depth + "a:" for depth in range(350)),
    "YAML flow": "a: [" + "1," * 32_000 + "]",
    "YAML number": "a: " + "1" * 65_000,
    "YAML set": "a: !!set {" + ",".join(f"k{number}" for number in range(9_000)) + "}",
    "TOML dotted keys": "\n".join("a." * 999 + f"b{number} = 1" for number in range(30)),
    "TOML nested": "a = " + "[" * 30_000 + "]" * 30_000,
    "TOML inline tables": "a = " + "{a=" * 9_000 + "1" + "}" * 9_000,
    "TOML number": "a = " + "1" * 65_000,
    "code fences": "```\n" * 200_000,
    "quotes": "{" + '"' * 1_000_000,
    "brackets": "[" * 1_000_000,
    "commands": ("a " + "x" * 290 + "'{ ") * 3_500,
    "blank lines": "\n" * 500_000 + "x",
}


@pytest.fixture(autouse=True)
def _short_budget(settings: Any) -> None:
    settings.IMPORT_SECONDS = 0.5


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_gets_a_verdict_and_costs_this_process_next_to_nothing(bomb: str) -> None:
    before = time.process_time()
    with pytest.raises(ValidationError) as caught:
        read(bomb)
    assert time.process_time() - before < 0.5, "processor time of the web, not of the child"
    assert caught.value.messages[0].endswith(".")


def test_a_text_that_takes_too_long_says_which_limit_ended_it_and_what_to_do() -> None:
    with pytest.raises(ValidationError) as caught:
        read(JSON5_BLOCK * 40)
    assert caught.value.messages == [
        "Reading this configuration took too long, so it was stopped. Limit: 0.5 s to read one configuration. An "
        "operator can change it with MCPADMIN_IMPORT_SECONDS. Paste only the servers, as plain JSON if you can."
    ]


def test_a_text_that_takes_too_much_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(limits.LIMITS, "import_memory_mib", replace(limits.LIMITS["import_memory_mib"], fixed=8))
    with pytest.raises(ValidationError, match="took too much memory"):
        read("a: [" + "1," * 30_000 + "]")


def test_no_child_is_left_behind() -> None:
    for text in (JSON5_BLOCK * 40, "a: {command: x}"):
        try:
            read(text)
        except ValidationError:
            continue
    assert list(children()) == []


def children() -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"text_child.py" in status.read_bytes() and ppid(status.parent) == os.getpid():
                yield int(status.parent.name)
        except OSError:
            continue


def ppid(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def test_plain_json_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_CHILD", Path("/nowhere.py"))
    assert [name for name, _ in read('{"mcpServers": {"a": {"command": "x"}}}').servers] == ["a"]
    with pytest.raises(ValidationError):
        read("a: {command: x}")


def test_what_the_child_read_is_what_was_written() -> None:
    text = """
    // servers of a colleague
    {mcpServers: {a: {command: 'x', args: ['\u00e9', "1"], env: {N: 5, F: 1.5, T: true, X: null}, list: [[], {}]}, },}
    """
    ((name, entry),) = read(text).servers
    assert name == "a"
    assert entry == {
        "command": "x",
        "args": ["é", "1"],
        "env": {"N": 5, "F": 1.5, "T": True, "X": None},
        "list": [[], {}],
    }


def test_names_that_occur_twice_are_known_after_the_child_too() -> None:
    document = read("mcpServers: {a: {command: x}, a: {command: y}}")
    assert document.doubles == ("a",)


def test_what_json_cannot_hold_is_never_taken_for_text() -> None:
    ((_, toml),) = read("[mcp_servers.a]\ncommand = 'x'\ncwd = 2024-01-01").servers
    ((_, yaml),) = read("mcpServers: {a: {command: x, cwd: !!timestamp 2024-01-01, env: {}}}").servers
    assert isinstance(toml["cwd"], OtherValue)
    assert isinstance(yaml["cwd"], OtherValue)
    assert yaml["env"] == {}
