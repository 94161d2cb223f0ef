"""Search mode of a bundle: two tools of our own replace a list that is too long for any model."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from unicodedata import normalize

from sessions.agents.exchange import Exchange
from sessions.mcp.server.refusals import invalid_params

FIND_TOOL: Final = "find_tool"
CALL_TOOL: Final = "call_tool"
MOST_FOUND: Final = 20
_FOUND: Final = 8
#: searched characters of a description: the end of a very long one does not say what the tool does
_SEARCHED: Final = 20_000
#: searched characters of name and title together
_NAMED: Final = 500
#: searched characters of all descriptions together, in equal shares: hostile servers have lists of many megabytes
SEARCHED_IN_ALL: Final = 4 * 1024 * 1024
#: longest prefix of a word that is kept
_STEM: Final = 40
_WORD: Final = re.compile(r"[^\W_]+")
#: Thai, Lao, Burmese, Khmer, Chinese, Japanese, and Korean, which attaches particles to words
_UNSPACED: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]+)"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_READ_ONLY: Final = {"readOnlyHint": True, "openWorldHint": False}

DEFINITIONS: Final = (
    json.dumps(
        {
            "name": FIND_TOOL,
            "title": "Find tool",
            "description": "Finds tools by what they do. Returns their names, descriptions and input schemas. Use this before call_tool; search again with other words if nothing fits.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What the tool should do, in a few words."},
                    "limit": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MOST_FOUND,
                        "description": f"How many tools to return at most; {_FOUND} if left out.",
                    },
                },
                "required": ["query"],
            },
            "annotations": _READ_ONLY,
        }
    ),
    json.dumps(
        {
            "name": CALL_TOOL,
            "title": "Call tool",
            "description": "Runs a tool that find_tool returned, and returns the result of that tool. Use it after find_tool.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The tool's name, exactly as find_tool returned it."},
                    "arguments": {"type": "object", "description": "Arguments that fit the tool's input schema."},
                },
                "required": ["name"],
            },
        }
    ),
)


@dataclass(frozen=True)
class SearchQuery:
    query: str
    limit: int


def wanted(exchange: Exchange) -> SearchQuery | str:
    """What *find tool* is asked for, or an error message that the model can act on."""
    given = exchange.params.get("arguments")
    query = given.get("query") if isinstance(given, dict) else None
    if not isinstance(query, str) or not query.strip():
        return "/query: Say in a few words what the tool should do."
    limit = given.get("limit", _FOUND) if isinstance(given, dict) else _FOUND
    if type(limit) is not int or not 1 <= limit <= MOST_FOUND:
        return f"/limit: Enter a number from 1 to {MOST_FOUND}."
    return SearchQuery(query[:500], limit)


def found(items: Sequence[dict[str, Any]], query: str, limit: int) -> list[dict[str, Any]]:
    """Definitions that contain words of the query, best first: a word in the name counts more than one in the
    description, a rare word more than one that many tools have."""
    words, share = set(_words(query)), min(_SEARCHED, SEARCHED_IN_ALL // max(1, len(items)))
    hits = [
        (
            _said(words, f"{one.get('name', '')} {one.get('title', '')}"[:_NAMED]),
            _said(words, str(one.get("description", ""))[:share]),
        )
        for one in items
    ]
    rarity = {word: 1 / (1 + sum(word in name or word in text for name, text in hits)) for word in words}
    scored = []
    for position, (name, text) in enumerate(hits):
        score = sum(rarity[word] * (3 * (word in name) + (word in text)) for word in words)
        if score:
            scored.append((-score, position))
    return [items[position] for _, position in sorted(scored)[:limit]]


def _said(wanted: set[str], text: str) -> set[str]:
    """The wanted words that occur in the text; longer ones also match if one is a prefix of the other. Prefixes are
    looked up, not compared pairwise: a hostile server has many words."""
    words = set(_words(text))
    if not text.isascii():
        words |= set("".join(_UNSPACED.findall(text)))
    stems = {word[:size] for word in words for size in range(4, min(len(word), _STEM) + 1)}

    def said(word: str) -> bool:
        return word in words or word[:_STEM] in stems or any(word[:size] in words for size in range(4, len(word)))

    return {word for word in wanted if (said(word) if len(word) > 3 else word in words)}


def _words(text: str) -> list[str]:
    """The words of a text; in scripts without spaces, every two consecutive characters."""
    found: list[str] = []
    for word in _WORD.findall(normalize("NFC", _CAMEL.sub(" ", text)).casefold()):
        if word.isascii():
            found.append(word)
            continue
        for at, part in enumerate(_UNSPACED.split(word)):
            if at % 2 == 0:
                found += [part] if part else []
            else:
                found += [part[place : place + 2] for place in range(max(1, len(part) - 1))]
    return found


def answer(items: Sequence[dict[str, Any]], total: int) -> dict[str, Any]:
    """The result of *find tool*."""
    if not items:
        words = f"No tool matches. There are {total} tools: try different or more general words."
        return {"content": [{"type": "text", "text": words}]}
    kept = [
        {name: one[name] for name in ("name", "title", "description", "inputSchema", "annotations") if name in one}
        for one in items
    ]
    return {"content": [{"type": "text", "text": json.dumps({"tools": kept}, ensure_ascii=False)}]}


def inner(exchange: Exchange) -> Exchange:
    """The call that *call tool* wraps. Raises Refusal."""
    given = exchange.params.get("arguments")
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(given, dict) or not isinstance(name, str) or not name:
        raise invalid_params(f"{CALL_TOOL} needs name, the name of a tool as {FIND_TOOL} returned it.")
    params = {key: value for key, value in exchange.params.items() if key != "arguments"}
    if "arguments" in given:
        params["arguments"] = given["arguments"]
    return replace(exchange, params={**params, "name": name})
