"""The list of a server's tools: grouped by their annotations and split into parts, as a server may have hundreds."""

import json
from dataclasses import dataclass
from typing import Final

from servers.enums import DefinitionKind
from servers.models import Definition, Server
from sessions.catalog import search
from sessions.catalog.search import Listed, Part
from sessions.overview import server_page
from sessions.overview.server_page import ToolEntry

_ANNOTATIONS: Final = '"annotations"'
_NAME_CHARS: Final = 80


@dataclass(frozen=True)
class ToolGroup:
    """The tools of a group within one part. `total`: their number in all parts."""

    title: str
    total: int
    entries: list[ToolEntry]


@dataclass(frozen=True)
class ToolList:
    """One part of the matching tools. `found`: in the server's order; `choices`: the names of all parts, by group."""

    groups: list[ToolGroup]
    found: Listed[Definition]
    choices: list[tuple[str, list[tuple[str, str]]]]
    part: Part


def tool_list(server: Server, find: str, key: str = "", start: int | None = None) -> ToolList:
    """The part that begins at `start`, or the one that contains the tool `key`, or the first one."""
    rows = search.matching(server, DefinitionKind.TOOL, find)
    names = list(rows.values_list("pk", "key", "body")[: search.ENTRIES + 1])
    matching = len(names) if len(names) <= search.ENTRIES else rows.count()
    groups: dict[str, list[tuple[int, str]]] = {"Read": [], "Write": [], "Destructive": []}
    for pk, name, body in names[: search.ENTRIES]:
        groups[_group(body)].append((pk, name))
    if not groups["Read"] and not groups["Destructive"]:
        groups = {"Tools": groups["Write"]}
    ordered = [(title, pk, name) for title, group in groups.items() for pk, name in group]
    if start is None:
        start = next((index for index, (_, _, name) in enumerate(ordered) if key and name == key), 0)
    at = Part.at(start, matching)
    here = ordered[at.start : at.start + at.size]
    definitions = server.definitions.in_bulk([pk for _, pk, _ in here])
    part = []
    for title, group in groups.items():
        entries = [server_page.tool_entry(definitions[pk]) for of, pk, _ in here if of == title and pk in definitions]
        if entries:
            part.append(ToolGroup(title, len(group), entries))
    found = sorted(definitions.values(), key=lambda one: (one.position, one.pk))
    choices = [(title, [(name, name[:_NAME_CHARS]) for _, name in group]) for title, group in groups.items() if group]
    return ToolList(part, Listed(found, matching), choices, at)


def _group(body: str) -> str:
    if _ANNOTATIONS not in body:
        return "Write"  # most servers set none: parsing 600 definitions for them takes 10 ms
    tool = json.loads(body)
    hints = server_page.hints(tool) if isinstance(tool, dict) else []
    return "Read" if "read-only" in hints else "Destructive" if "destructive" in hints else "Write"
