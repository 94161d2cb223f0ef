"""Schema violations in words for the person who filled in the form. No sentence repeats the value."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from servers.schemas.labels import option_label, snippet
from servers.schemas.pointer import join

_SHOWN_OPTIONS = 8


@dataclass(frozen=True)
class Violation:
    """`pointer` is where the form shows it: for a missing key, the key itself, not the object that lacks it."""

    pointer: str
    message: str


def phrased(raw: list[dict[str, Any]]) -> list[Violation]:
    """The violations in the child's answer, in order, without duplicates."""
    return list(dict.fromkeys(violation for item in raw for violation in _violations(item)))


def _violations(item: dict[str, Any]) -> Iterator[Violation]:
    path, words, keyword = item["path"], item["words"], item["keyword"]
    if keyword == "required" and "property" in words:
        yield Violation(join([*path, words["property"]]), "Required.")
    elif keyword in {"additionalProperties", "unevaluatedProperties"} and words.get("unexpected"):
        yield from (
            Violation(join([*path, str(key)]), f"“{key}” is not a known property.") for key in words["unexpected"]
        )
    elif keyword == "falseSchema" and item["where"] in {"additionalProperties", "unevaluatedProperties"}:
        yield Violation(join(path), "No properties are allowed.")
    elif keyword in {"anyOf", "oneOf"} and item["context"]:
        yield from _of_branches(item)
    else:
        phrase, message = _PHRASES.get(keyword), item["message"]
        yield Violation(join(path), phrase(words) if phrase else f"{message[:1].upper()}{message[1:]}.")


def _of_branches(item: dict[str, Any]) -> Iterator[Violation]:
    """What is wrong in the branch that is clearly meant, if there is one."""
    path = item["path"]
    if item["keyword"] == "oneOf" and any(not branch for branch in item["context"]):
        yield Violation(join(path), "Matches more than one of the allowed schemas.")
        return
    meant = [branch for branch in item["context"] if not any(_wrong_kind(error, path) for error in branch)]
    if len(meant) == 1:
        for error in meant[0]:
            yield from _violations(error)
    else:
        yield Violation(join(path), "Matches none of the allowed schemas.")


def _wrong_kind(error: dict[str, Any], path: list[str | int]) -> bool:
    """Whether the type differs, or the value of a property that only distinguishes the branches."""
    if error["keyword"] == "type":
        return bool(error["path"] == path)
    return error["keyword"] in {"const", "enum"} and len(error["path"]) <= len(path) + 1


def _limit(sentence: str) -> Callable[[dict[str, Any]], str]:
    def phrase(words: dict[str, Any]) -> str:
        limit = words.get("limit", words.get("multiple_of"))
        return sentence.format(limit, "" if limit == 1 else "s")

    return phrase


def _type(words: dict[str, Any]) -> str:
    names = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false"}
    names |= {"array": "a list", "object": "an object", "null": "null"}
    return f"Must be {' or '.join(names.get(name, name) for name in words.get('types', []))}."


def _enum(words: dict[str, Any]) -> str:
    options = words.get("options", [])
    shown = ", ".join(option_label(option, None, mixed=True)[:40] for option in options[:_SHOWN_OPTIONS])
    return f"Must be one of {shown}{', …' if len(options) > _SHOWN_OPTIONS else '.'}"


_FORMATS = {
    "date": "a date like 2026-11-20",
    "date-time": "a date and time like 2026-11-20T14:32:08Z",
    "time": "a time like 14:32:08Z",
    "email": "an email address",
    "uri": "a full address like https://example.com/",
    "uuid": "a UUID",
    "ipv4": "an IPv4 address",
    "ipv6": "an IPv6 address",
}


def _format(words: dict[str, Any]) -> str:
    name = str(words.get("format", ""))
    return f"Must be {_FORMATS.get(name, f'in the format “{name[:40]}”')}."


_PHRASES: dict[str, Callable[[dict[str, Any]], str]] = {
    "minimum": _limit("Must be {0} or more."),
    "maximum": _limit("Must be {0} or less."),
    "exclusiveMinimum": _limit("Must be more than {0}."),
    "exclusiveMaximum": _limit("Must be less than {0}."),
    "multipleOf": _limit("Must be a multiple of {0}."),
    "minLength": _limit("At least {0} character{1}."),
    "maxLength": _limit("At most {0} character{1}."),
    "minItems": _limit("At least {0} item{1}."),
    "maxItems": _limit("At most {0} item{1}."),
    "minProperties": _limit("At least {0} entries."),
    "maxProperties": _limit("At most {0} entries."),
    "type": _type,
    "enum": _enum,
    "format": _format,
    "const": lambda words: f"Must be {snippet(words.get('expected_value'), 60)}.",
    "pattern": lambda words: f"Must match the pattern {snippet(words.get('pattern', ''))}",
    "uniqueItems": lambda words: "Items must be unique.",
    "contains": lambda words: "A required item is missing.",
    "propertyNames": lambda words: "A property name is not allowed.",
    "not": lambda words: "This value is excluded.",
    "falseSchema": lambda words: "No value is allowed.",
    "anyOf": lambda words: "Matches none of the allowed schemas.",
    "oneOf": lambda words: "Must match exactly one of the allowed schemas.",
    "dependentRequired": lambda words: "Another property is missing.",
}
