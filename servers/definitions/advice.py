"""What makes a tool hard to use for a model, judged only by its definition, each with a suggestion."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

#: what model APIs accept as a name
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
#: per definition; several such tools leave little room for anything else
MANY_TOKENS: Final = 1_000
_SHORT_WORDS: Final = 3
#: for text in a script that may not use spaces
_SHORT_CHARS: Final = 20
_MOST_NAMED: Final = 8
_DEPTH: Final = 6
_WHEN: Final = re.compile(
    r"\b(when|whenever|if|use[ds]?|useful|using|before|after|instead|unless|until|only|prefer|avoid|should|must|need(s|ed)?)\b",
    re.IGNORECASE,
)
#: the words for a purpose are known only in English
_ENGLISH: Final = re.compile(
    r"\b(the|and|with|from|this|that|by|(return|get|list|create|delete|update|read|write|send|find|set|run|add|remove)s?|search(es)?)\b",
    re.IGNORECASE,
)
_COMBINED: Final = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True)
class Advice:
    problem: str
    suggestion: str


def advice(tools: Sequence[Mapping[str, Any]], tokens: Sequence[int], prefix: str = "") -> list[list[Advice]]:
    """For each tool, in their order. `tokens`: of each. `prefix`: what a client puts before each name."""
    twins = _twins(tools)
    texts = Counter(_text(tool.get("description")) for tool in tools)
    return [
        [*_name(tool, prefix, twins), *_description(tool, texts), *_parameters(tool), *_size(count)]
        for tool, count in zip(tools, tokens, strict=True)
    ]


def _name(tool: Mapping[str, Any], prefix: str, twins: Mapping[str, list[str]]) -> Iterator[Advice]:
    name = _text(tool.get("name"))
    shown = prefix + name
    if len(shown) > 64:
        short = f", or the short name in {prefix}" if prefix else ""
        yield Advice(
            f"{len(shown)} characters in a client: {shown}", f"Models accept at most 64. Shorten the name{short}."
        )
    elif NAME.fullmatch(shown) is None:
        yield Advice(
            "Characters that models do not accept",
            "Use letters, digits, _ and - only. One invalid name can make a model reject the whole list.",
        )
    others = [other for other in twins[_skeleton(name)] if other != name]
    if others:
        yield Advice(
            f"Almost the same name as {', '.join(others[:_MOST_NAMED])}",
            "Models mix them up. Rename one, or offer only one.",
        )


def _description(tool: Mapping[str, Any], texts: Mapping[str, int]) -> Iterator[Advice]:
    text = _text(tool.get("description"))
    if not text:
        yield Advice("No description", "Say in one sentence what it does, and in another when to use it.")
        return
    if texts[text] > 1:
        yield Advice("Another tool has the same description", "Say what sets this one apart.")
    if len(text.split()) <= _SHORT_WORDS and (text.isascii() or len(text) < _SHORT_CHARS):
        yield Advice("A very short description", "Say what it does, what it returns and when to use it.")
    elif _ENGLISH.search(text) is not None and _WHEN.search(text) is None:
        yield Advice(
            "Says what it does, but not when to use it", "Add when to use it, and when another tool is better."
        )


def _parameters(tool: Mapping[str, Any]) -> Iterator[Advice]:
    bare = list(_undescribed(tool.get("inputSchema"), "", _DEPTH))
    if bare:
        more = f" and {len(bare) - _MOST_NAMED} more" if len(bare) > _MOST_NAMED else ""
        what = "parameter" if len(bare) == 1 else "parameters"
        yield Advice(
            f"No description for the {what} {', '.join(bare[:_MOST_NAMED])}{more}",
            "Describe each: its meaning, its format, an example.",
        )


def _size(tokens: int) -> Iterator[Advice]:
    if tokens > MANY_TOKENS:
        yield Advice(
            f"{tokens:,} tokens in every conversation",
            "Shorten the description, or hide parameters that models do not need.",
        )


def _undescribed(schema: Any, path: str, depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth == 0:
        return
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        here = f"{path}{name}"
        if not _is_described(inner):
            yield here
        yield from _undescribed(inner, f"{here}.", depth - 1)
    if isinstance(items := schema.get("items"), dict):
        yield from _undescribed(items, path, depth - 1)


def _is_described(schema: Any, *, inside: bool = True) -> bool:
    if not isinstance(schema, dict):
        return False
    if _text(schema.get("description")) or "$ref" in schema or "const" in schema:
        return True
    forms = [one for word in _COMBINED if isinstance(found := schema.get(word), list) for one in found]
    return inside and any(_is_described(one, inside=False) for one in forms)


def _twins(tools: Sequence[Mapping[str, Any]]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        name = _text(tool.get("name"))
        found[_skeleton(name)].append(name)
    return found


def _skeleton(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold())) or name


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""
