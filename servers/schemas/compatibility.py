"""Whether a changed definition still works for users of the previous one. Pure: plain JSON in, a Compatibility out.

Input must still accept what it accepted before; output must still return what it returned before. What cannot be
compared within the budget counts as breaking, and the reason says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from uritemplate import variables

from servers.schemas.input_schema import input_schema_of
from servers.schemas.schema_bounds import Effect
from servers.schemas.schema_difference import differences
from servers.schemas.schema_reading import STEPS, Budget, TooLarge, without_words
from servers.storable import storable

Change = Literal["words", "compatible", "breaking"]
Sentence = tuple[str, bool]  # a reason, and whether it breaks
MAX_REASONS = 12
REASON_CHARS = 300
MAX_TEMPLATE_CHARS = 8_192
LISTING_STEPS = 10 * STEPS
"""For all definitions in one listing: if a server changes thousands at once, not all are compared."""
TOO_LARGE = "It is too large to be compared in the time allowed, so it counts as breaking."

_WORD_KEYS = frozenset({"title", "description", "icons", "annotations", "_meta"})
_SCHEMAS = {
    "inputSchema": ("Argument", "The input", Effect.LESS),
    "outputSchema": ("Result", "The output", Effect.MORE),
}
_LABELS = {
    "inputSchema": "The input schema",
    "outputSchema": "The output schema",
    "arguments": "The list of arguments",
    "mimeType": "The type",
    "size": "The size",
    "name": "The name",
}
_HINTS = {
    "readOnlyHint": ("It is now marked read-only.", "It is no longer marked read-only."),
    "destructiveHint": ("It is now marked destructive.", "It is no longer marked destructive."),
    "idempotentHint": ("It is now marked idempotent.", "It is no longer marked idempotent."),
    "openWorldHint": ("It is now marked open world.", "It is no longer marked open world."),
}


@dataclass(frozen=True, slots=True)
class Compatibility:
    """`reasons`: one sentence each; for a breaking change only the breaking ones."""

    change: Change
    reasons: list[str]


def check_compatibility(before: Any, after: Any, budget: Budget | None = None) -> Compatibility:
    """Compare two descriptions of one tool, resource, template or prompt. All in one listing share a `budget`."""
    own = Budget(STEPS, budget)
    try:
        own.require_shallow(before)
        own.require_shallow(after)
        return _checked(_mapping(before), _mapping(after), own)
    except (TooLarge, RecursionError):
        return Compatibility("breaking", [TOO_LARGE])


def _checked(before: Mapping[str, Any], after: Mapping[str, Any], budget: Budget) -> Compatibility:
    found: list[Sentence] = []
    only_words = True
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if key in _WORD_KEYS or _same(key, one, other, budget):
            continue
        only_words = False
        found += list(_sentences(key, one, other, budget)) or [
            (f"{_label(key)} is written differently but means the same.", False)
        ]
    if only_words:
        return Compatibility("words", _limited(list(_hints(before, after))))
    breaking = [text for text, breaks in found if breaks]
    return Compatibility("breaking" if breaking else "compatible", _limited(breaking or [text for text, _ in found]))


def _same(key: str, one: Any, other: Any, budget: Budget) -> bool:
    if key in _SCHEMAS:
        return budget.same(without_words(one), without_words(other))
    if key == "arguments":
        before, after = (
            [
                {member: value for member, value in _mapping(argument).items() if member not in _WORD_KEYS}
                for argument in _listed(side)
            ]
            for side in (one, other)
        )
        return budget.same(before, after)
    return budget.same(one, other)


def _sentences(key: str, one: Any, other: Any, budget: Budget) -> Iterator[Sentence]:
    if key in _SCHEMAS:
        yield from _of_schema(key, one, other, budget)
    elif key == "arguments":
        yield from _of_arguments(_by_name(one), _by_name(other))
    elif key == "uriTemplate":
        yield from _of_template(one, other)
    elif key == "execution":
        before, after = (_mapping(side).get("taskSupport", "forbidden") for side in (one, other))
        if before != after:
            yield f"Running it as a task was {_word(before)} and is now {_word(after)}.", after == "required"
    else:
        yield f"{_label(key)} {'was added' if one is None else 'was removed' if other is None else 'changed'}.", False


def _label(key: str) -> str:
    return _LABELS.get(key, f"“{_word(key)}”")


# --- schemas of tools ------------------------------------------------------------------------------------------------
def _of_schema(key: str, one: Any, other: Any, budget: Budget) -> Iterator[Sentence]:
    noun, whole, harm = _SCHEMAS[key]
    if key == "outputSchema" and (one is None or other is None):
        yield ("The output now has a schema.", False) if one is None else ("The output no longer has a schema.", True)
        return
    if key == "inputSchema":
        one, other = (input_schema_of({key: side}) for side in (one, other))
    for finding in differences(one, other, budget):
        subject = f"{noun} “{finding.place}”" if finding.place else whole
        yield f"{subject} {finding.words}.", finding.effect in (harm, Effect.OTHER)


def _hints(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What changed in the annotations: wording only, but people act on it."""
    one, other = (_mapping(side.get("annotations")) for side in (before, after))
    for name, (now, no_more) in _HINTS.items():
        if (one.get(name) is True) is not (other.get(name) is True):
            yield now if other.get(name) is True else no_more


# --- prompts and templates -------------------------------------------------------------------------------------------
def _of_arguments(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Sentence]:
    for name in sorted(one.keys() - other.keys()):
        yield f"Argument “{_word(name)}” was removed.", True
    for name in sorted(other.keys() - one.keys()):
        must = other[name].get("required") is True
        yield f"Argument “{_word(name)}” was added{' and is required' if must else ''}.", must
    for name in sorted(one.keys() & other.keys()):
        before, after = (side[name].get("required") is True for side in (one, other))
        if before is not after:
            yield f"Argument “{_word(name)}” is {'now required' if after else 'no longer required'}.", after


def _of_template(one: Any, other: Any) -> Iterator[Sentence]:
    before, after = _variables(one), _variables(other)
    if before == after:
        yield "The template builds different URIs from the same variables.", True
    for name in sorted(before - after):
        yield f"Variable “{_word(name)}” was removed.", True
    for name in sorted(after - before):
        yield f"Variable “{_word(name)}” was added.", True


def _variables(template: Any) -> set[str]:
    if not isinstance(template, str) or len(template) > MAX_TEMPLATE_CHARS:
        return set()
    return {str(name) for name in variables(template)}


# --- values from a server, of any type --------------------------------------------------------------------------------
def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _by_name(arguments: Any) -> dict[str, Mapping[str, Any]]:
    named = [_mapping(argument) for argument in _listed(arguments)]
    return {argument["name"]: argument for argument in named if isinstance(argument.get("name"), str)}


def _word(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _limited(reasons: list[str]) -> list[str]:
    kept = [storable(reason, REASON_CHARS) for reason in dict.fromkeys(reasons)]
    left = len(kept) - MAX_REASONS
    return kept if left <= 0 else [*kept[:MAX_REASONS], f"And {left} more."]
