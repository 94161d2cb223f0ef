"""Scenarios of a list of tools (rows O7 and O8). Standard library only."""

from collections.abc import Iterator
from typing import Any

from . import messages
from .messages import MIB, Ask, Big, Said, Scene, dumped, name_of

LISTS: dict[str, Scene] = {}


def on_list(scene: Scene) -> Scene:
    LISTS[name_of(scene)] = scene
    return scene


def _tools(ask: Ask, tools: list[dict[str, Any]], cursor: str | None) -> bytes:
    result: dict[str, Any] = {"tools": tools}
    if cursor is not None:
        result["nextCursor"] = cursor
    return dumped({"id": ask.id, "result": result})


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


def _page(ask: Ask) -> int:
    return int(ask.params.get("cursor") or 0)


@on_list
def endless_pages(ask: Ask) -> Iterator[Said]:
    page = _page(ask)
    yield _tools(ask, [tool(f"t{page}")], str(page + 1))


@on_list
def circling_cursor(ask: Ask) -> Iterator[Said]:
    yield _tools(ask, [tool("t")], "next")


@on_list
def many_tools(ask: Ask) -> Iterator[Said]:
    page = _page(ask)
    yield _tools(ask, [tool(f"t{page}-{number}") for number in range(4_000)], str(page + 1))


@on_list
def fat_tools(ask: Ask) -> Iterator[Said]:
    page = _page(ask)
    yield _tools(ask, [tool(f"t{page}-{number}", description="d" * MIB) for number in range(4)], str(page + 1))


@on_list
def fat_cursor(ask: Ask) -> Iterator[Said]:
    page = int(str(ask.params.get("cursor", "0"))[:2].rstrip("c"))
    yield _tools(ask, [tool(f"t{page}")], f"{page + 1}" + "c" * 4 * MIB)


@on_list
def hostile_schemas(ask: Ask) -> Iterator[Said]:
    doubling: dict[str, Any] = {"type": "string"}
    for _ in range(20):
        doubling = {"allOf": [doubling]}
    schemas = {
        "regex": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
        "remote": {"$ref": messages.BAIT},
        "file": {"$ref": "file:///etc/passwd"},
        "self": {"$ref": "#"},
        "nested": doubling,
        "types": {"type": 7, "properties": [], "required": "x", "x-mcp-header": {}},
    }
    yield _tools(ask, [{"name": name, "inputSchema": schema} for name, schema in schemas.items()], None)


# --- lists that are refused as a whole ------------------------------------------------------------------------------------
@on_list
def giant_list(ask: Ask) -> Iterator[Said]:
    yield Big(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[' % ask.id, b'{"name":"t"},', 1_100_000, b'{"name":"t"}]}}')


@on_list
def list_of_values(ask: Ask) -> Iterator[Said]:
    yield ask.raw(b'{"tools":[' + b"1," * 600_000 + b"1]}")


@on_list
def deep_list(ask: Ask) -> Iterator[Said]:
    yield ask.raw(b'{"tools":' + b"[" * 1_000 + b"]" * 1_000 + b"}")


@on_list
def broken_list(ask: Ask) -> Iterator[Said]:
    yield ask.raw(b'{"tools":[{"name":"t",}]}')


@on_list
def broken_list_beside_silence(ask: Ask) -> Iterator[Said]:
    """The server declares prompts as well, and never lists them."""
    yield from broken_list(ask)


@on_list
def list_of_another_type(ask: Ask) -> Iterator[Said]:
    yield ask.raw(b'{"tools":{"t":{"name":"t"}}}')


# --- lists whose entries are left out -------------------------------------------------------------------------------------
@on_list
def entries_of_other_types(ask: Ask) -> Iterator[Said]:
    yield ask.raw(b'{"tools":[1,null,[],{"title":"no name"},{"name":7}]}')


@on_list
def duplicate_names(ask: Ask) -> Iterator[Said]:
    yield _tools(ask, [tool("t", title=f"{number}") for number in range(3)], None)
