"""Turns the text of the box into one server, with what it needs, what was left out and what is wrong with it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ValidationError

from servers.configuration import Registration
from servers.enums import TransportKind
from servers.registration.adding.command_lines import read_command_line
from servers.registration.forms.suggestion import suggest
from servers.registration.importing.document import ImportedDocument, naming_word, read
from servers.registration.importing.entries import Entry, parse
from servers.registration.importing.entry_reader import Need
from servers.registration.importing.example_values import example_values
from servers.registration.importing.placeholders import in_one_spelling, replaced
from servers.registration.proposals import Proposal, proposed
from servers.secret import Secret
from servers.validators import holds_secret, is_secret_parameter, looks_secret, secret_arguments

#: a command line longer than this is a configuration, or a mistake
_LONGEST_LINE = 20_000
_CONFIGURATION = re.compile(r"\s*(?:[{\[#]|//|/\*)|\s*\"[^\"\n]{1,500}\"\s*:|\s*[\w.\"-]+\s*:\s*(?:\{|$)", re.MULTILINE)
_SCHEME = re.compile(r"(?:bearer|basic|token)\b", re.IGNORECASE)
#: parts of a host or package name that do not identify a server
_COMMON = frozenset({"mcp", "server", "api", "www", "docs", "modelcontextprotocol", "index", "main", "sse"})


@dataclass(frozen=True)
class Reading:
    """`kind`: what the text was recognized as; `names`: of all servers in it; the one at `index` was read.

    `problem`: why nothing could be read.
    """

    text: str
    kind: str = ""
    names: tuple[str, ...] = ()
    index: int = 0
    entry: Entry | None = None
    remarks: tuple[str, ...] = ()
    problem: str = ""
    access: Proposal | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    #: the unread parts of the text may contain a secret: other servers, ignored members, prose
    rest_holds_secret: bool = False

    @property
    def registration(self) -> Registration | None:
        return self.entry.registration if self.entry else None

    @property
    def needs(self) -> tuple[Need, ...]:
        return self.entry.needs if self.entry else ()

    @property
    def unmet(self) -> list[Need]:
        """Values that are still missing."""
        return [need for need in self.needs if not self.given.get(need.key)]

    @property
    def is_testable(self) -> bool:
        """Whether its connection can be tested without asking: nothing is missing or wrong, and no process starts."""
        found = self.registration
        if found is None or self.entry is None or found.transport == TransportKind.STDIO:
            return False
        return not (self.entry.problems or self.unmet)

    @property
    def digest(self) -> str:
        """The digest of what the fields were filled from; of typed secrets, only whether they were given."""
        given = sorted((need.key, need.secret or self.given.get(need.key, "")) for need in self.needs)
        whole = f"{self.index} {given} {self.text}"
        return hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest()[:32]

    @property
    def holds_secret(self) -> bool:
        """Whether the text must not be sent back to the page."""
        found = self.registration
        if found is None:
            return True
        query = found.url.partition("?")[2].partition("#")[0]
        return (
            self.rest_holds_secret
            or any(isinstance(value.value, Secret) for value in found.values)
            or bool(secret_arguments(found.arguments))
            or any(is_secret_parameter(item) for item in query.split("&"))
        )


def read_source(text: str, index: int = 0, typed: Mapping[int, str] | None = None) -> Reading:
    """`typed`: the values that the text needs, by position in `needs`; the default applies where nothing was posted."""
    text = text.replace("\r\n", "\n").strip().removeprefix("\ufeff").strip()  # a form posts each line's end as CRLF
    try:
        kind, document = _document(text)
    except ValidationError as problem:
        return Reading(text, problem=" ".join(problem.messages))
    names = tuple(name for name, _ in document.servers)
    index = index if 0 <= index < len(names) else 0
    name, raw = document.servers[index]
    entry = parse(document, name, raw)
    given = {need.key: (typed or {}).get(number, need.default) for number, need in enumerate(entry.needs)}
    if given := {key: value for key, value in given.items() if value}:
        entry = parse(document, name, raw, given)
    rest = bool(document.remarks) or any(map(_may_hold_secret, (raw for _, raw in document.servers)))
    return _with_access(Reading(text, kind, names, index, entry, document.remarks, given=given, rest_holds_secret=rest))


def _may_hold_secret(raw: Any) -> bool:
    """Whether a value anywhere in an entry looks like a secret, by itself or by its name."""
    waiting = [("", raw)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            texts = [item if isinstance(item, str) else "" for item in value]
            if any(_is_meant(texts[index]) for index in secret_arguments(texts)):
                return True
            waiting += [("", item) for item in value]
        elif isinstance(value, str) and _is_secret(name, value):
            return True
    return False


def _is_secret(name: str, text: str) -> bool:
    if any(is_secret_parameter(item) for item in text.partition("?")[2].split("&")):
        return True
    return holds_secret(name, text) and _is_meant(text, secret=looks_secret(name))


def _is_meant(text: str, *, secret: bool = True) -> bool:
    """Whether the text is more than a reference or a placeholder from instructions."""
    plain = _SCHEME.sub("", replaced(in_one_spelling(text), lambda _: "")).strip()
    return bool(plain) and not example_values(plain, secret=secret)


def _document(text: str) -> tuple[str, ImportedDocument]:
    """Raises ValidationError."""
    if not text:
        raise ValidationError("Enter a URL, a command line or a configuration.", code="required")
    if _CONFIGURATION.match(text) or len(text) > _LONGEST_LINE:
        document = read(text)
        return document.dialect, document
    if "\n" in re.sub(r"\\\r?\n", " ", text):
        document = read(text)
        return document.dialect, document
    suggestion = suggest(text)
    if suggestion.transport != TransportKind.STDIO:
        return "URL", ImportedDocument("URL", [(_of_host(suggestion.url), {"url": suggestion.url})])
    line = read_command_line(text)
    url = line.entry.get("url")
    name = line.name or (_of_host(url) if url and isinstance(url, str) else _of_package(line.entry))
    return line.words, ImportedDocument(line.words, [(name, line.entry)])


def _of_host(url: str) -> str:
    """`https://mcp.linear.app/mcp` is Linear; an IP address or a one-word host is its own name."""
    host = re.sub(r"^[a-z]+://|[/?#].*$", "", url, flags=re.IGNORECASE).rpartition("@")[2]
    parts = [part for part in host.partition(":")[0].split(".")[:-1] if part.lower() not in _COMMON]
    if re.fullmatch(r"[\d.]+(?::\d+)?|localhost(?::\d+)?|\[.*", host) or not parts:
        return host or "Server"
    return parts[-1].capitalize()


def _of_package(entry: Mapping[str, Any]) -> str:
    """`npx -y @modelcontextprotocol/server-filesystem /srv` is Filesystem."""
    command, arguments = entry.get("command"), entry.get("args")
    words = [
        *(command if isinstance(command, list) else [command]),
        *(arguments if isinstance(arguments, list) else []),
    ]
    words = [str(word) for word in words if word]
    named = naming_word(words) or next(iter(words), "")
    last = re.sub(r"(?<=.)(?:@|==).*$", "", named.rstrip("/").rpartition("/")[2])
    stem = re.sub(r"\.(?:py|js|mjs|ts|sh)$", "", last)
    parts = [part for part in re.split(r"[-_.]", stem) if part and part.lower() not in _COMMON]
    return " ".join(parts).capitalize() or stem or "Server"


def _with_access(reading: Reading) -> Reading:
    """Add the access that a known server needs beyond the defaults, unless the text specifies access itself."""
    found = reading.registration
    if found is None or reading.entry is None or found.transport != TransportKind.STDIO:
        return reading
    if found.readable_paths or found.writable_paths or found.network_hosts or reading.unmet:
        return reading
    variables = {value.name: value.text() for value in found.values if not value.secret and value.value is not None}
    access = proposed(found.command, found.arguments, variables)
    if access is None:
        return reading
    granted = replace(
        found,
        readable_paths=list(access.readable_paths),
        writable_paths=list(access.writable_paths),
        network_hosts=list(access.network_hosts),
    )
    return replace(reading, entry=replace(reading.entry, registration=granted), access=access)
