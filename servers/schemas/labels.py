"""The text next to a control: its type, its limits, its default, the names of options and branches."""

import json
import re
from typing import Any

from servers.json.text import Json
from servers.schemas.merge import Flat
from servers.schemas.resolve import Document
from servers.schemas.shapes import Schema, Unsupported, count_of, number_of, only_value, text_of, types_of

_LONG_NAMES = {"content", "contents", "sql", "prompt", "text", "body", "code", "script", "markdown", "html", "yaml"}
_LONG_NAMES |= {"instructions", "template", "diff", "patch"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_EXAMPLES = {
    "date-time": "2026-11-20T14:32:08Z",
    "time": "14:32:08Z",
    "duration": "PT15M",
    "uuid": "8c1f2f5e-9a43-4c55-8a3e-0d6d1f7c2b11",
}
_RANGE = {"minimum": "{} or more.", "maximum": "{} or less."}
_RANGE |= {"exclusiveMinimum": "More than {}.", "exclusiveMaximum": "Less than {}."}
_SIZES = {"minLength": "At least {} characters.", "maxLength": "At most {} characters."}
_SIZES |= {"minItems": "At least {} items.", "maxItems": "At most {} items."}
INPUT_MODES = {"email": "email", "idn-email": "email", "uri": "url", "iri": "url", "uri-reference": "url"}


def snippet(value: Json, limit: int = 80) -> str:
    """A value on one line, truncated; strings without quotes unless they would read as something else."""
    text = value if isinstance(value, str) and value.strip() else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def option_label(value: Json, title: object, mixed: bool) -> str:
    if isinstance(title, str) and title.strip():
        return title[:200]
    if isinstance(value, str) and value.strip() and not (mixed and _reads_as_json(value)):
        return value[:200]
    return json.dumps(value, ensure_ascii=False)[:200]


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text[:50])
    except ValueError:
        return False
    return True


def is_multiline(key: str, flat: Flat) -> bool:
    """Whether the text is likely to have several lines."""
    words = _WORD.findall(key)
    longest = count_of(flat, "maxLength")
    return bool(words and words[-1].lower() in _LONG_NAMES) or (longest is not None and longest > 200)


def text_type(flat: Flat) -> str:
    return text_of(flat, "format", 30) or "string"


def example(flat: Flat) -> str:
    examples = flat.get("examples")
    if isinstance(examples, list) and examples and isinstance(examples[0], str):
        return examples[0][:80]
    return _EXAMPLES.get(text_of(flat, "format", 30), "")


def hints(flat: Flat, default: str) -> str:
    """Limits and default in one line: "1 to 500. Default 50."."""
    parts: list[str] = []
    low, high = number_of(flat, "minimum"), number_of(flat, "maximum")
    both = low is not None and high is not None
    if both:
        parts.append(f"{low} to {high}.")
    for key, sentence in (_SIZES if both else _RANGE | _SIZES).items():
        limit = number_of(flat, key)
        if limit is not None and (key, limit) != ("minLength", 1):
            parts.append(sentence.format(limit) if limit != 1 else sentence.format(limit).replace("s.", "."))
    step = number_of(flat, "multipleOf")
    if step is not None and step != 1:
        parts.append(f"A multiple of {step}.")
    if isinstance(flat.get("pattern"), str):
        parts.append(f"Pattern {snippet(flat['pattern'])}")
    if flat.get("uniqueItems") is True:
        parts.append("No duplicates.")
    if flat.get("deprecated") is True:
        parts.append("Deprecated.")
    if default:
        parts.append(f"Default {default.removesuffix('.')}.")
    return " ".join(parts)


def branch_label(document: Document, branch: Schema, number: int) -> str:
    """A title, a discriminating constant, the name of the definition, or the type."""
    try:
        flat, _ = document.flatten(branch)
    except Unsupported:
        return f"option {number}"
    reference = branch.get("$ref") if isinstance(branch, dict) else None
    named = reference.rsplit("/", 1)[-1] if isinstance(reference, str) else ""
    constants = ((key, only_value(sub)) for key, sub in flat.get("properties", {}).items())
    discriminator = next(
        (f"{key}: {only[0]}"[:60] for key, only in constants if only and isinstance(only[0], str) and only[0]), ""
    )
    return text_of(flat, "title", 60) or discriminator or named[:60] or _shape(flat) or f"option {number}"


def _shape(flat: Flat) -> str:
    if only := only_value(flat):
        return snippet(only[0], 40)
    types = types_of(flat) or (["object"] if "properties" in flat else [])
    keys = list(flat.get("properties", {}))[:3]
    if types == ["object"] and keys:
        return f"object with {', '.join(keys)}"[:60]
    if types == ["array"]:
        return f"array of {_item_type(flat)}" if _item_type(flat) else "array"
    return text_of(flat, "format", 30) or " or ".join(types)


def _item_type(flat: Flat) -> str:
    items: Any = flat.get("items")
    return " or ".join(types_of(items)) if isinstance(items, dict) and isinstance(items.get("type"), str) else ""
