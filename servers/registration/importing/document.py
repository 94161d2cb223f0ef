"""From the text of a configuration file to the servers in it, whichever client wrote it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ValidationError

from servers import limits
from servers.packages.commands import readable
from servers.registration.importing import registry
from servers.registration.importing.inputs import Input, inputs_of
from servers.registration.importing.parsing import parts
from servers.registration.importing.registry import About
from servers.registration.importing.text import Pairs
from servers.validators import secret_arguments, started_words

_MAX_DEPTH = 5
_ENTRY_KEYS = frozenset({"command", "cmd", "url", "uri", "serverUrl", "server_url", "httpUrl"})
# Where clients keep their servers, and how the page names them. A dot leads into an object, or is part of the name.
_FRAMES = (
    ("mcpServers", "mcpServers, as Claude, Cursor, Windsurf and most others write it"),
    ("mcp_servers", "Codex"),
    ("context_servers", "Zed"),
    ("amp.mcpServers", "Amp"),
    ("augment.advanced.mcpServers", "Augment"),
    ("experimental.modelContextProtocolServers", "Continue"),
    ("mcp.servers", "VS Code settings"),
    ("mcp.mcpServers", "mcpServers"),
    ("mcp", "opencode or Crush"),
    ("extensions", "Goose"),
    ("servers", "VS Code"),
)
_ANYWHERE = {name: words for name, words in _FRAMES if name in ("mcpServers", "mcp_servers", "context_servers")}
_OF_GOOSE = frozenset({"builtin", "platform", "frontend", "inline_python"})


@dataclass(frozen=True)
class ImportedDocument:
    """`about`: by name, what is known about a server besides its entry; `remarks`: sentences about the whole
    document."""

    dialect: str  # in words
    servers: list[tuple[str, Any]]
    doubles: tuple[str, ...] = ()  # names of servers that occur twice
    inputs: Mapping[str, Input] = field(default_factory=dict)
    about: Mapping[str, About] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def read(text: str) -> ImportedDocument:
    """Raises ValidationError with a message for people, which quotes only names from the text."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").strip()  # forms and Windows end lines with CRLF
    if not text:
        words = f"Paste a configuration, or choose a file of at most {limits.in_words('import_bytes')}."
        raise ValidationError(words, code="required")
    if len(text.encode(errors="surrogatepass")) > limits.number("import_bytes"):
        raise ValidationError(too_large(), code="size")
    document = _first(text)
    if not document.servers:
        raise ValidationError("This configuration contains no servers.", code="empty")
    if len(document.servers) > limits.number("import_servers"):
        words = f"Too many servers: {len(document.servers):,}. {limits.stated('import_servers')} Import them in smaller batches."
        raise ValidationError(words, code="servers")
    return document


def too_large() -> str:
    return f"Too large. {limits.stated('import_bytes')} Remove everything except the servers."


def _first(text: str) -> ImportedDocument:
    """The first configuration in the text: a README has one for each client, mostly for the same server."""
    found: list[ImportedDocument] = []
    beside, problem = False, None
    for part in parts(text):
        beside |= part.beside
        try:
            found.append(_document(part.value))
        except ValidationError as refused:
            problem = problem or refused
    if not found:
        raise problem or ValidationError(
            "A configuration must be an object with server names as its keys.", code="shape"
        )
    first = next((one for one in found if one.servers), found[0])
    others = sum(one.servers != first.servers for one in found if one.servers)
    if others:
        count = (
            "1 more configuration in the text was" if others == 1 else f"{others} more configurations in the text were"
        )
        words = f"{count} not read. To import another one, paste it separately."
        return replace(first, remarks=(*first.remarks, words))
    if beside:
        return replace(first, remarks=(*first.remarks, "Text around the configuration was ignored."))
    return first


def _document(root: Any) -> ImportedDocument:
    if isinstance(root, list):
        root = {"mcpServers": root}
    if not isinstance(root, dict):
        raise ValidationError("A configuration must be an object with server names as its keys.", code="shape")
    if described := registry.descriptions(root):
        servers, about, inputs = registry.servers_of(described)
        return ImportedDocument("server.json of the MCP registry", servers, inputs=inputs, about=about)
    taken: set[int] = set()
    if found := list(_framed(root, taken)):
        found += _inside(root, taken)
        return _joined([document for document in found if document.servers] or found[:1])
    _refuse_doubles(root)
    if _is_entry(root):
        return ImportedDocument("one server", [(_name_of(root), root)])
    if any(_is_entry(value) for value in root.values()):
        return ImportedDocument("servers by name", list(root.items()))
    if inner := [document for document in _inside(root, taken) if document.servers]:
        return _joined(inner)
    message = "No servers found. Clients keep them under mcpServers, servers, mcp_servers, context_servers, mcp or extensions."
    raise ValidationError(message, code="shape")


def _joined(found: list[ImportedDocument]) -> ImportedDocument:
    dialect = ", and ".join(dict.fromkeys(one.dialect for one in found))
    first, *others = found
    for one in others:
        first = ImportedDocument(
            dialect,
            first.servers + one.servers,
            first.doubles + one.doubles,
            {**first.inputs, **one.inputs},
            remarks=first.remarks + one.remarks,
        )
    return first


# --- frames ------------------------------------------------------------------------------------------------------------
def _framed(root: Mapping[str, Any], taken: set[int]) -> Iterator[ImportedDocument]:
    """`taken`: ids of what was already read; extended here."""
    for path, dialect in _FRAMES:
        for owner, key in _at(root, path):
            given = owner[key]
            if id(given) in taken or not _fits(path, given):
                continue
            taken |= {id(given), *(id(value) for value in (given.values() if isinstance(given, dict) else ()))}
            yield _of(owner, key, dialect)


def _at(root: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The path may be written as one name with dots, or as nested objects."""
    if path in root:
        yield root, path
        return
    steps = path.split(".")
    for size in range(len(steps) - 1, 0, -1):
        inner = root.get(".".join(steps[:size]))
        if isinstance(inner, dict):
            yield from _at(inner, ".".join(steps[size:]))


def _fits(path: str, given: Any) -> bool:
    """A name that others use for other things counts only if it contains servers."""
    if path == "mcp":
        return isinstance(given, dict) and any(map(_is_entry, given.values()))
    if path == "extensions":
        rows = list(given.values()) if isinstance(given, dict) else given if isinstance(given, list) else []
        return any(_is_entry(row) or _is_of_goose(row) for row in rows)
    return True


def _of(owner: Mapping[str, Any], key: str, dialect: str) -> ImportedDocument:
    if key in _doubles(owner) or "inputs" in _doubles(owner):
        raise ValidationError("The list of servers is defined twice in this file. Remove one.", code="double")
    found = owner[key]
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        rows = [(_name_of(row), row) for row in found]
    elif isinstance(found, dict):
        rows = list(found.items())
    else:
        words = f"{key} must be an object with server names as its keys, or a list of servers."
        raise ValidationError(words, code="shape")
    own = [name for name, row in rows if _is_of_goose(row) and not _is_entry(row)]
    remarks = (f"Skipped because they are built into Goose: {', '.join(own)}.",) if own else ()
    rows = [(name, row) for name, row in rows if name not in own]
    return ImportedDocument(dialect, rows, _doubles(found), inputs_of(owner.get("inputs")), remarks=remarks)


def _inside(value: Any, taken: Collection[int], depth: int = 0) -> Iterator[ImportedDocument]:
    """Servers nested deeper in a client's settings, as in the projects of Claude Code, except those in `taken`."""
    if depth > _MAX_DEPTH or not isinstance(value, dict):
        return
    for name, item in value.items():
        if id(item) in taken:
            continue
        if name in _ANYWHERE and isinstance(item, dict | list):
            yield _of(value, name, _ANYWHERE[name])
        else:
            yield from _inside(item, taken, depth + 1)


def _is_entry(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    inner = [value.get(key) for key in ("transport", "config")]
    return any(_ENTRY_KEYS & one.keys() for one in (value, *inner) if isinstance(one, dict))


def _is_of_goose(value: Any) -> bool:
    kind = value.get("type") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind in _OF_GOOSE


def _doubles(value: Any) -> tuple[str, ...]:
    return value.doubles if isinstance(value, Pairs) else ()


def _refuse_doubles(root: Mapping[str, Any]) -> None:
    if doubles := _doubles(root):
        raise ValidationError(f"“{doubles[0]}” is defined twice in this file. Remove one.", code="double")


def _name_of(entry: Mapping[str, Any]) -> str:
    """The entry's own name, or else the package or the host."""
    for key in ("name", "id", "label", "server_label"):
        if isinstance(entry.get(key), str) and entry[key].strip():
            return str(entry[key])
    inner = entry.get("transport")
    entry = inner if isinstance(inner, dict) else entry
    command, arguments = entry.get("command", entry.get("cmd")), entry.get("args")
    words = [
        *(command if isinstance(command, list) else [command]),
        *(arguments if isinstance(arguments, list) else []),
    ]
    package = naming_word([word for word in words if isinstance(word, str) and word])
    address = next(
        (entry[key] for key in sorted(_ENTRY_KEYS - {"command", "cmd"}) if isinstance(entry.get(key), str)), ""
    )
    host = re.sub(r"^[a-z]+://|[/:?#].*$", "", address.rpartition("@")[2])
    name = package.rstrip("/").rpartition("/")[2].partition("@")[0] or host
    return name[:120] or "imported"


def naming_word(words: Sequence[str]) -> str:
    """The package or file in a command line, after which a server is named. Empty if there are only options. Never a
    word that may contain a secret: everybody sees names."""
    if len(words) > 2 and words[0].lower().removesuffix(".exe") == "cmd" and words[1].lower() == "/c":
        words = words[2:]
    words = started_words(words[0], words[1:]) if words else []
    if words and (found := readable(words[0], words[1:])) is not None:
        return found.name
    secret = secret_arguments(words)
    named = [word for index, word in enumerate(words) if index and index not in secret and "=" not in word]
    return next((word for word in named if not word.startswith(("-", "run"))), "")
