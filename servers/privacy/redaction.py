"""Masks values before they are stored: by JSON path, by the tool's schema, by the shape of a secret.

A path is applied to the whole value and to each JSON document inside it: servers repeat the structured part of a result
as the text of a content block, and return resources as text.

A parsed value is masked in place. Copying the containers around each secret of a deep value could take gigabytes.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import structlog

from servers.audit.payload_privacy import PayloadPrivacy, Rule
from servers.enums import RedactedPart
from servers.privacy import detection
from servers.privacy.escapes import unescaped
from servers.schemas.secrets import secret_places
from servers.secret import MASK

if TYPE_CHECKING:
    from jsonpath import JSONPath, JSONPathEnvironment

log = structlog.get_logger(__name__)
#: a JSON document inside a longer text than this is not searched by path: the text is masked as a whole
INNER_CHARS = 1024 * 1024
PATH_CHARS = 500
#: the most members of a value for a path with a filter, and for one whose filter itself searches from $, with .. or a
#: filter: the time may grow with their square. Larger values are masked as a whole
MOST_FILTERED, MOST_SEARCHED = 20_000, 300
#: a byte order mark too
_BEFORE_JSON = "\ufeff \t\r\n"
#: members of a content or a resource that may hold JSON, and so many characters of base64 that show whether it begins
_TEXTS, _BLOB_BEGINS = ("text", "blob"), 64
Place = tuple[str | int, ...]
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class PathInvalid(ValueError):
    """The message is for the form."""


@dataclass(frozen=True)
class Subject:
    """What is about to be stored. `schema`: the tool's schema for this part, if it has one. `place`: where a JSON-RPC
    message contains it, if not where _IN_MESSAGES says."""

    part: RedactedPart
    server_id: int | None = None
    target: str = ""
    schema: Any = None
    place: Place = ()


def redacted(text: str, subject: Subject, policy: PayloadPrivacy) -> tuple[str, int]:
    """JSON text with masks, and how many there are. Parses it only when a rule, the schema or a shape may apply."""
    rules = _relevant(policy.rules, subject, text)
    schema = subject.schema if policy.by_schema else None
    shapes = detection.shapes_in(text) if policy.detect else ()
    if not rules and schema is None and not shapes:
        return text, 0
    value, count = json.loads(text), 0
    if rules or schema is not None:
        value, count = _in_documents(value, rules, schema, subject.part)
    if shapes:
        value, found = _detected(value, shapes)
        count += found
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")), count) if count else (text, 0)


#: where a JSON-RPC message holds what a subject is about
_IN_MESSAGES: Mapping[RedactedPart, Place] = {
    RedactedPart.ARGUMENTS: ("params", "arguments"),
    RedactedPart.RESULT: ("result",),
    RedactedPart.ANSWER: ("result", "content"),
}


def redacted_message(text: str, subject: Subject | None, policy: PayloadPrivacy) -> str | None:
    """A JSON-RPC message for the recorded wire, masked like its arguments, result or answer in the payload. Without a
    subject, only detected secrets are masked. None if something must be masked and the message cannot be searched."""
    shapes = detection.shapes_in(unescaped(text)) if policy.detect else ()
    concerned = subject is not None and (
        bool(_relevant(policy.rules, subject, text)) or (policy.by_schema and subject.schema is not None)
    )
    if not shapes and not concerned:
        return text
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):  # cut off, or not JSON: what cannot be searched is not stored
        return None if concerned else detected_in(unescaped(text), policy)
    count = 0
    if subject is not None and concerned:
        message, count = _redacted_inside(message, text, subject, policy)
    if shapes:
        message, found = _detected(message, shapes)
        count += found
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")) if count else text


def _redacted_inside(message: Any, text: str, subject: Subject, policy: PayloadPrivacy) -> tuple[Any, int]:
    place = subject.place or _IN_MESSAGES[subject.part]
    inner = message
    for step in place:
        if not isinstance(inner, dict) or step not in inner:
            return message, 0
        inner = inner[step]
    rules = _relevant(policy.rules, subject, text)
    masked, count = _in_documents(inner, rules, subject.schema if policy.by_schema else None, subject.part)
    return (_with(message, place, masked), count) if count else (message, 0)


def _with(value: Any, place: Place, new: Any) -> Any:
    return new if not place else {**value, place[0]: _with(value[place[0]], place[1:], new)}


def applies(rule: Rule, subject: Subject) -> bool:
    if rule.part not in (RedactedPart.ALL, subject.part):
        return False
    if rule.server_id is not None and rule.server_id != subject.server_id:
        return False
    return not rule.target or matches(rule.target, subject.target)


def _relevant(rules: Iterable[Rule], subject: Subject, text: str) -> list[Rule]:
    """Rules that apply and may find something. Applying a path to a value takes 100 times as long as this check."""
    # names are not to be seen in what JSON escapes, nor in the base64 of a resource
    escaped = "\\u" in text or (subject.part == RedactedPart.RESULT and '"blob"' in text)
    return [
        rule
        for rule in rules
        if applies(rule, subject) and (escaped or all(name in text for name in _names(rule.path)))
    ]


@lru_cache(maxsize=500)
def _names(path: str) -> tuple[str, ...]:
    """Names that a value must contain for the path to find anything, except those that JSON may write in several
    ways."""
    from jsonpath.selectors import NameSelector  # noqa: PLC0415  # see _paths

    try:
        segments = compiled(path).segments
    except PathInvalid:
        return ()
    single = [segment.selectors[0] for segment in segments if len(segment.selectors) == 1]
    names = [one.name for one in single if isinstance(one, NameSelector)]
    return tuple(name for name in names if _PLAIN_NAME.fullmatch(name))


def matches(pattern: str, name: str) -> bool:
    """`*` matches anything; all other characters match themselves."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


def detected_in(text: str, policy: PayloadPrivacy) -> str:
    """For server text that is not JSON: error messages, log lines."""
    return detection.mask(text, detection.shapes_in(text))[0] if policy.detect else text


def detected_in_json(text: str, policy: PayloadPrivacy) -> str:
    """As `detected_in`, for JSON text that no rule applies to."""
    return redacted(text, Subject(RedactedPart.ALL), PayloadPrivacy(by_schema=False, detect=policy.detect))[0]


@cache
def _paths() -> "JSONPathEnvironment":
    from jsonpath import JSONPathEnvironment  # noqa: PLC0415  # 50 ms, and most installations have no rule

    return JSONPathEnvironment(strict=True)


@lru_cache(maxsize=500)
def compiled(path: str) -> "JSONPath":
    """Raises PathInvalid."""
    from jsonpath import JSONPath, JSONPathError  # noqa: PLC0415  # see _paths

    try:
        found = _paths().compile(path)
    except (JSONPathError, RecursionError) as exc:
        words = exc.args[0] if exc.args else "nested too deeply"
        raise PathInvalid(f"Not a JSONPath (RFC 9535): {words}.") from exc
    if "match(" in path or "search(" in path:
        raise PathInvalid(
            "match() and search() are not supported: a regular expression can take very long to match a single value."
        )
    if not isinstance(found, JSONPath):
        raise PathInvalid("Use one path. For a second path, add another rule.")
    if not found.segments:
        raise PathInvalid("$ alone is the whole document. Name what to mask, such as $.password or $..password.")
    return found


# --- by path and by schema ---------------------------------------------------------------------------------------------
def _in_documents(value: Any, rules: Sequence[Rule], schema: Any, part: RedactedPart) -> tuple[Any, int]:
    if part != RedactedPart.RESULT:
        return _masked(value, _places(value, rules, schema))
    places = _places(value, rules, None)
    structured = value.get("structuredContent") if isinstance(value, dict) else None
    if structured is not None:
        places |= {("structuredContent", *place) for place in _places(structured, rules, schema)}
    value, count = _masked(value, places)
    for block in _blocks(value):
        for holder in (block, block.get("resource")):
            if not isinstance(holder, dict):
                continue
            for member in _TEXTS:
                if isinstance(text := holder.get(member), str):
                    holder[member], found = (_inner_blob if member == "blob" else _inner)(text, rules, schema)
                    count += found
    return value, count


def _blocks(value: Any) -> Iterable[dict[str, Any]]:
    """The contents of a tool's result, of a resource, and of a prompt's messages, which have one content or a list.
    Each may contain JSON as text or as base64."""
    if not isinstance(value, dict):
        return
    contents = [value.get(name) for name in ("content", "contents")]
    messages = value.get("messages")
    contents += [
        message.get("content")
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict)
    ]
    for found in contents:
        yield from (block for block in (found if isinstance(found, list) else [found]) if isinstance(block, dict))


def _inner(text: str, rules: Sequence[Rule], schema: Any) -> tuple[str, int]:
    if not _may_be_json(text):
        return text, 0
    if len(text) > INNER_CHARS:
        return MASK, 1
    try:
        return _document(text.lstrip(_BEFORE_JSON), text, rules, schema)
    except json.JSONDecodeError:
        return _lines(text, rules, schema)


def _may_be_json(text: str) -> bool:
    return text.lstrip(_BEFORE_JSON)[:1] in ("{", "[")


def _document(json_text: str, text: str, rules: Sequence[Rule], schema: Any) -> tuple[str, int]:
    """Raises JSONDecodeError."""
    try:
        document = json.loads(json_text)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        # JSON with a number or nesting that cannot be parsed here: what cannot be searched is not stored.
        return MASK, 1
    masked, count = _masked(document, _places(document, rules, schema))
    return (json.dumps(masked, ensure_ascii=False), count) if count else (text, 0)


def _lines(text: str, rules: Sequence[Rule], schema: Any) -> tuple[str, int]:
    """One document a line (NDJSON). A line that is none stays as it is."""
    count, lines = 0, text.split("\n")
    for number, line in enumerate(lines if len(lines) > 1 else ()):
        if _may_be_json(line):
            with suppress(json.JSONDecodeError):
                lines[number], found = _document(line.lstrip(_BEFORE_JSON), line, rules, schema)
                count += found
    return ("\n".join(lines), count) if count else (text, 0)


def _inner_blob(blob: str, rules: Sequence[Rule], schema: Any) -> tuple[str, int]:
    """Only the beginning of an image is decoded."""
    try:
        if not _may_be_json(b64decode(blob[:_BLOB_BEGINS]).decode("utf-8", "ignore")):
            return blob, 0
        text = b64decode(blob).decode()
    except ValueError:
        return blob, 0
    masked, count = _inner(text, rules, schema)
    return (b64encode(masked.encode("utf-8", "surrogatepass")).decode(), count) if count else (blob, 0)


def _places(value: Any, rules: Sequence[Rule], schema: Any) -> set[Place]:
    if not isinstance(value, dict | list):
        return set()
    places = _places_by_path(value, rules) if rules else set()
    return places if schema is None or () in places else places.union(secret_places(schema, value))


def _places_by_path(value: Any, rules: Sequence[Rule]) -> set[Place]:
    from jsonpath import JSONPathError  # noqa: PLC0415  # see _paths

    places: set[Place] = set()
    for rule in rules:
        try:
            places.update(_found(rule.path, value))
        except (JSONPathError, RecursionError, PathInvalid, _TooLarge) as problem:
            # too deep or too large for the library: what cannot be searched may hold the secret, so nothing of it is stored
            log.warning("redaction.path_failed", path=rule.path, problem=type(problem).__name__)
            return {()}
    return places


class _TooLarge(Exception):
    pass


def _found(path: str, value: Any) -> Iterable[Place]:
    """The library takes seconds for a large result and blocks its worker meanwhile, so it is used only for filters and
    slices, and only for values of limited size."""
    if (steps := _steps(path)) is not None:
        return _selected(value, steps)
    _, _, filters = path.partition("?")
    searches = ".." in filters or "$" in filters or "?" in filters
    if _has_more(value, MOST_SEARCHED if searches else MOST_FILTERED):
        raise _TooLarge
    return (tuple(match.parts) for match in compiled(path).finditer(value))


#: of a path: whether it descends, and what it selects: a name, an index, or None for everything
_Step = tuple[bool, tuple[str | int | None, ...]]


@lru_cache(maxsize=500)
def _steps(path: str) -> tuple[_Step, ...] | None:
    """None if there is more in it than names, indexes and `*`."""
    from jsonpath.segments import JSONPathRecursiveDescentSegment  # noqa: PLC0415  # see _paths
    from jsonpath.selectors import IndexSelector, NameSelector, WildcardSelector  # noqa: PLC0415  # see _paths

    steps: list[_Step] = []
    for segment in compiled(path).segments:
        selected: list[str | int | None] = []
        for one in segment.selectors:
            if not isinstance(one, NameSelector | IndexSelector | WildcardSelector):
                return None
            selected.append(
                one.name if isinstance(one, NameSelector) else one.index if isinstance(one, IndexSelector) else None
            )
        steps.append((isinstance(segment, JSONPathRecursiveDescentSegment), tuple(selected)))
    return tuple(steps)


def _selected(value: Any, steps: Sequence[_Step]) -> Iterable[Place]:
    found: dict[Place, Any] = {(): value}
    for descends, selected in steps:
        waiting, found = list(found.items()), {}
        seen: set[Place] = set()
        while waiting:
            place, part = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            for one in selected:
                for key in _keys(part, one):
                    found[*place, key] = part[key]
            if descends:
                members = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
                waiting.extend(((*place, key), below) for key, below in members if isinstance(below, (dict, list)))
    return found


def _keys(part: Any, selected: str | int | None) -> Iterable[Any]:
    if isinstance(part, dict):
        return part if selected is None else (selected,) if isinstance(selected, str) and selected in part else ()
    if not isinstance(part, list) or isinstance(selected, str):
        return ()
    size = len(part)
    if selected is None:
        return range(size)
    return (selected % size,) if -size <= selected < size else ()


def _has_more(value: Any, most: int) -> bool:
    """Whether it has more than so many members, those of its members included."""
    count, waiting = 0, [value]
    while waiting and count <= most:
        part = waiting.pop()
        if isinstance(part, dict | list):
            count += len(part)
            waiting.extend(part.values() if isinstance(part, dict) else part)
    return count > most


def _masked(value: Any, places: set[Place]) -> tuple[Any, int]:
    if () in places:
        return MASK, int(value != MASK)
    count = 0
    for place in sorted(places, key=len):  # nothing is searched inside a masked value
        part = value
        for step in place[:-1]:
            if isinstance(part, str):
                break
            part = part[step]
        if not isinstance(part, str) and part[place[-1]] != MASK:
            part[place[-1]] = MASK
            count += 1
    return value, count


# --- by shape ----------------------------------------------------------------------------------------------------------
def _detected(value: Any, shapes: Sequence[detection.Shape]) -> tuple[Any, int]:
    """In texts, and in the names of members."""
    names: dict[str, tuple[str, int]] = {}  # rows of a table repeat their names
    whole, count = [value], 0
    waiting: list[tuple[str, Any]] = [("", whole)]
    while waiting:
        name, part = waiting.pop()
        is_list = isinstance(part, list)
        for step, below in enumerate(part) if is_list else part.items():
            nearest = name if is_list else str(step)  # also of a list of texts
            if isinstance(below, str):
                part[step], number = detection.mask_member(nearest, below, shapes)
                count += number
            elif isinstance(below, dict | list):
                waiting.append((nearest, below))
        if not is_list:
            count += _renamed(part, names, shapes)
    return whole[0], count


def _renamed(members: dict[str, Any], names: dict[str, tuple[str, int]], shapes: Sequence[detection.Shape]) -> int:
    count = 0
    for name in members:
        if name not in names:
            names[name] = detection.mask(name, shapes)
        count += names[name][1]
    if count:
        before = list(members.items())
        members.clear()
        members.update((names[name][0], below) for name, below in before)
    return count
