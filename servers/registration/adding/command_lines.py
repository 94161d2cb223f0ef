"""Command lines as found in instructions: `claude mcp add …`, the Inspector's, variables in front of a command."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import ValidationError

from servers.registration.importing.parsing import parts
from servers.validators import split_command_line

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_URL = re.compile(r"(?:https?|wss?)://", re.IGNORECASE)
#: clients whose `mcp add` takes a name, then a URL or a command
_CLIENTS = frozenset({"claude", "codex", "gemini", "qwen", "copilot", "droid"})
#: for VS Code and its forks
_EDITOR_OPTION = "--add-mcp"
_INSPECTOR = "@modelcontextprotocol/inspector"
_HEADER, _VARIABLE, _TRANSPORT, _URL_OPTION = ("-H", "--header"), ("-e", "--env"), ("-t", "--transport"), ("--url",)
_BEARER = ("--bearer-token-env-var",)
#: options with a value that is irrelevant here: the scope of a client's settings, its timeouts, its own sign-in
_SKIPPED = (
    *("-s", "--scope", "--timeout", "--description", "--include-tools", "--exclude-tools", "--client-id"),
    "--callback-port",
)
#: the same without a value: with `--client-secret`, the client prompts for one
_FLAGS = ("--client-secret", "--trust")


@dataclass(frozen=True)
class CommandLine:
    """`entry` is what a configuration file would contain for it, with the command as a list, split as by a shell.
    `words`: the client it was written for."""

    entry: dict[str, Any]
    name: str = ""
    words: str = "command line"


@dataclass
class _Options:
    values: dict[str, list[str]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    def of(self, names: Sequence[str]) -> list[str]:
        return [value for name in names for value in self.values.get(name, ())]


def read_command_line(text: str) -> CommandLine:
    """Raises ValidationError if quotes do not match."""
    line = re.sub(r"\\\r?\n", " ", text).strip().removeprefix("$ ")
    command, arguments = split_command_line(line)
    words = [command, *arguments]
    variables = _taken_variables(words)
    program = words[0].rpartition("/")[2] if words else ""
    if program in _CLIENTS and words[1:3] in (["mcp", "add"], ["mcp", "add-json"]):
        found = _of_client(program, words[2], words[3:])
    elif _EDITOR_OPTION in words[1:-1]:
        found = _of_editor(program, words[words.index(_EDITOR_OPTION) + 1])
    elif (at := _after_inspector(words)) is not None:
        found = _entry("", _options(words[at:]), "MCP Inspector")
    else:
        found = CommandLine({"command": words[:1], "args": words[1:]})
    if variables:
        found.entry["env"] = variables | found.entry.get("env", {})
    return found


def _taken_variables(words: list[str]) -> dict[str, str]:
    """Remove and return `NAME=value` in front of the command, as a shell reads it; a leading `env` does the same."""
    if words[0] == "env" and len(words) > 1 and _ASSIGNMENT.fullmatch(words[1]):
        del words[0]
    variables = {}
    while len(words) > 1 and (found := _ASSIGNMENT.fullmatch(words[0])):
        variables[found[1]] = found[2]
        del words[0]
    return variables


def _after_inspector(words: Sequence[str]) -> int | None:
    """The position of the first argument after the Inspector's name."""
    for index, word in enumerate(words[:4]):
        if word == _INSPECTOR or word.startswith(f"{_INSPECTOR}@"):
            return index + 1 if len(words) > index + 1 else None
    return None


def _of_client(program: str, verb: str, words: list[str]) -> CommandLine:
    options = _options(words)
    if verb == "add":
        name, options.rest = (options.rest[0], options.rest[1:]) if options.rest else ("", [])
        return _entry(name, options, f"{program} mcp add")
    name, text = (*options.rest, "", "")[:2]
    entry = _json(text)
    if not isinstance(entry, dict):
        raise ValidationError(f"The JSON of {program} mcp add-json cannot be read.", code="json")
    return CommandLine(entry, name, f"{program} mcp add-json")


def _of_editor(program: str, text: str) -> CommandLine:
    entry = _json(text)
    if not isinstance(entry, dict):
        raise ValidationError(f"The JSON of {program} {_EDITOR_OPTION} cannot be read.", code="json")
    name = entry.get("name")
    return CommandLine(entry, name if isinstance(name, str) else "", f"{program} {_EDITOR_OPTION}")


def _json(text: str) -> Any:
    """Read `text` like a configuration: within the same limits, and with duplicate names. None if it is not JSON."""
    try:
        return next((part.value for part in parts(text)), None) if text.lstrip()[:1] == "{" else None
    except ValidationError:
        return None


def _options(words: Sequence[str]) -> _Options:
    """Parse the options before the command; what follows the command's first word, or `--`, belongs to the command."""
    found, waiting, positional = _Options(), list(words), 0
    while waiting:
        word = waiting.pop(0)
        name, mark, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if word == "--":
            found.rest += waiting
            break
        if word in _FLAGS:
            continue
        if name in (*_HEADER, *_VARIABLE, *_TRANSPORT, *_URL_OPTION, *_BEARER, *_SKIPPED):
            if not mark and waiting:
                value = waiting.pop(0)
            found.values.setdefault(name, []).append(value)
            while name in _VARIABLE and waiting and _ASSIGNMENT.fullmatch(waiting[0]):
                found.values[name].append(waiting.pop(0))
            continue
        found.rest.append(word)
        positional += 1
        if positional > 1 and not _URL.match(word):
            found.rest += waiting
            break
    return found


def _entry(name: str, options: _Options, words: str) -> CommandLine:
    urls = options.of(_URL_OPTION) or [word for word in options.rest[:1] if _URL.match(word)]
    variables = dict(pair.partition("=")[::2] for pair in options.of(_VARIABLE))
    if urls:
        headers = {}
        for header in options.of(_HEADER):
            key, _, value = header.partition(":")
            headers[key.strip()] = value.strip()
        kind = (options.of(_TRANSPORT) or [""])[0]
        entry: dict[str, Any] = {"url": urls[0], "headers": headers} | ({"type": kind} if kind else {})
        if token := options.of(_BEARER):
            entry["bearer_token_env_var"] = token[0]
    else:
        entry = {"command": options.rest[:1], "args": options.rest[1:], "env": variables}
    return CommandLine(entry, name, words)
