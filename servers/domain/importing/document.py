"""From the text of a configuration file to the servers in it: JSON, JSON with comments, TOML; whichever client wrote it.

Names that stand twice in one object are kept in `Pairs.doubles`: which of the two is meant, nobody can know.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import json5
from django.core.exceptions import ValidationError

MAX_BYTES = 1_048_576
#: what is not strict JSON is read by slower parsers
MAX_BYTES_SLOW = 65_536
MAX_SERVERS = 200
#: a dotted TOML key costs the square of its parts
_MAX_DOTS = 1_000
_POSITION = re.compile(r"<string>:(\d+) .* column (\d+)", re.DOTALL)
_FRAGMENT = re.compile(r'"[^"\n]{1,500}"\s*:')
_ENTRY_KEYS = frozenset({"command", "url", "serverUrl", "server_url", "httpUrl"})


class Pairs(dict[str, Any]):
    """An object of the document."""

    doubles: tuple[str, ...] = ()


@dataclass(frozen=True)
class Input:
    """A value that a VS Code configuration asks its user for."""

    description: str = ""
    default: str = ""
    secret: bool = False


@dataclass(frozen=True)
class Document:
    dialect: str  # in words
    servers: list[tuple[str, Any]]
    doubles: tuple[str, ...] = ()  # names of servers that stand twice
    inputs: Mapping[str, Input] = field(default_factory=dict)


def read(text: str) -> Document:
    """Raises ValidationError with words for people, which quote nothing of the text but names."""
    text = text.removeprefix("\ufeff").strip()
    if not text:
        raise ValidationError("Paste a configuration, or choose a file of at most 1 MiB.", code="required")
    if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
        raise ValidationError("At most 1 MiB.", code="size")
    root = _parsed(text)
    if not isinstance(root, dict):
        raise ValidationError("A configuration is an object with a name for each server.", code="shape")
    document = _document(root)
    if not document.servers:
        raise ValidationError("There is no server in this configuration.", code="empty")
    if len(document.servers) > MAX_SERVERS:
        raise ValidationError(f"At most {MAX_SERVERS} servers at once.", code="servers")
    return document


# --- text to objects ---------------------------------------------------------------------------------------------------
def _parsed(text: str) -> Any:
    try:
        if text[0] in "{/":
            return _json(text)
        if _FRAGMENT.match(text):  # copied from inside of a file
            return _json("{" + text.rstrip().rstrip(",") + "}")
        return _toml(text)
    except RecursionError:
        raise ValidationError("This is nested too deeply to be a configuration.", code="depth") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as strict:
        return _json_with_comments(text, strict)
    except ValueError:
        raise ValidationError("This is no JSON: it holds a number that cannot be read.", code="json") from None


def _json_with_comments(text: str, strict: json.JSONDecodeError) -> Any:
    if len(text) > MAX_BYTES_SLOW:
        words = f"This is no strict JSON (line {strict.lineno}, column {strict.colno}). With comments, at most 64 KiB."
        raise ValidationError(words, code="json") from None
    try:
        return json5.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except ValueError as exc:
        found = _POSITION.match(str(exc))
        line, column = found.groups() if found else (strict.lineno, strict.colno)
        message = f"This is no JSON: the mistake is at line {line}, column {column}."
        raise ValidationError(message, code="json") from None


def _toml(text: str) -> Any:
    if len(text) > MAX_BYTES_SLOW or any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise ValidationError("This is no JSON, and as TOML it is too large: at most 64 KiB.", code="size")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        where = re.search(r"line \d+, column \d+|end of document", str(exc))
        place = f": the mistake is at {where[0]}" if where else ""
        raise ValidationError(f"This is neither JSON nor TOML{place}.", code="toml") from None
    except ValueError:
        raise ValidationError("This is no TOML: it holds a number that cannot be read.", code="toml") from None


def _pairs(items: list[tuple[str, Any]]) -> Pairs:
    found = Pairs(items)
    if len(found) != len(items):
        found.doubles = tuple(name for name, count in Counter(name for name, _ in items).items() if count > 1)
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


# --- objects to servers ------------------------------------------------------------------------------------------------
def _document(root: Mapping[str, Any]) -> Document:
    if "mcpServers" in root:
        return _of(root, "mcpServers", "mcpServers, as Claude, Cursor and Windsurf write it")
    if "mcp_servers" in root:
        return _of(root, "mcp_servers", "Codex")
    if isinstance(root.get("mcp"), dict) and "servers" in root["mcp"]:
        return _of(root["mcp"], "servers", "VS Code settings")
    if "servers" in root:
        return _of(root, "servers", "VS Code")
    _refuse_doubles(root)
    if _ENTRY_KEYS & root.keys():
        return Document("one server", [(_name_for(root), root)])
    if any(isinstance(value, dict) and _ENTRY_KEYS & value.keys() for value in root.values()):
        return Document("servers by name", list(root.items()))
    message = "No servers were found. A configuration has them under mcpServers, servers or mcp_servers."
    raise ValidationError(message, code="shape")


def _of(root: Mapping[str, Any], key: str, dialect: str) -> Document:
    if key in _doubles(root) or "inputs" in _doubles(root):
        raise ValidationError("The list of servers stands twice in this file. Remove one.", code="double")
    found = root[key]
    if not isinstance(found, dict):
        raise ValidationError(f"{key} is an object with a name for each server.", code="shape")
    return Document(dialect, list(found.items()), _doubles(found), _inputs(root.get("inputs")))


def _doubles(value: Mapping[str, Any]) -> tuple[str, ...]:
    return value.doubles if isinstance(value, Pairs) else ()


def _refuse_doubles(root: Mapping[str, Any]) -> None:
    if doubles := _doubles(root):
        raise ValidationError(f"“{doubles[0]}” stands twice in this file. Remove one.", code="double")


def _inputs(given: Any) -> dict[str, Input]:
    rows = [row for row in given if isinstance(row, dict)] if isinstance(given, list) else []
    return {row["id"]: _input(row) for row in rows if isinstance(row.get("id"), str)}


def _input(row: Mapping[str, Any]) -> Input:
    secret = row.get("password") is True
    default = row.get("default") if not secret else ""
    return Input(_text(row.get("description")), _text(default), secret)


def _text(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""


def _name_for(entry: Mapping[str, Any]) -> str:
    """For an entry that was pasted without its name: the package or the host."""
    words = [entry.get("command"), *(entry.get("args") or [])] if isinstance(entry.get("args"), list) else []
    packages = [word for word in words[1:] if isinstance(word, str) and word and not word.startswith("-")]
    address = next((entry[key] for key in sorted(_ENTRY_KEYS - {"command"}) if isinstance(entry.get(key), str)), "")
    host = re.sub(r"^[a-z]+://|[/:?#].*$", "", address.rpartition("@")[2])
    name = (packages[0].rstrip("/").rpartition("/")[2].partition("@")[0] if packages else "") or host
    return name[:120] or "imported"
