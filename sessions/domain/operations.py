"""The methods that people may ask of a server, each a call in the ledger. What differs between them stands here as values.

How a method is sent stands in `sessions.host.operations`, what its result looks like in `result_views`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from servers.enums import DefinitionKind
from sessions.domain import plain_arguments
from sessions.domain.arguments import Given, Rejected, read_arguments
from sessions.protocol import methods

TARGET_BYTES = 8 * 1024
Definition = Mapping[str, Any]
#: arguments as they are stored, and why they could not be checked ("" when they were)
Read = tuple[Any, str]


@dataclass(frozen=True)
class Words:
    """`noun`: what a target is. `open` leads to its page.

    `unsure` ends a failure after which nobody knows more, `refused` one of a message that carried no more than a
    refusal, `cancelled` what a cancellation leaves open; `remedy` says what to do while the outcome is unknown.
    """

    noun: str
    again: str
    open: str
    unsure: str = "The server may have received it."
    refused: str = "The server refused the request."
    cancelled: str = "so the server may have gone on with it."
    remedy: str = "Nothing is meant to change at a server by this request, so it may be made again."


_TOOL_WORDS = Words(
    noun="tool",
    again="Run again",
    open="Open the tool",
    unsure="The tool may have run.",
    refused="The server refused the request itself; the tool's own answer is missing.",
    cancelled="so the tool may have run in part.",
    remedy="Find out at the server whether it ran. If it did not, or if twice does no harm, run it again.",
)


@dataclass(frozen=True)
class Operation:
    """`place`: in which list of the server a target stands, and under which key. `missing` refuses one that does not
    stand there; empty: it need not."""

    method: str
    words: Words
    place: Callable[[str], tuple[DefinitionKind, str]]
    read: Callable[[str, Definition, Given], Read]
    missing: str = ""
    check_target: Callable[[str], None] = lambda target: None
    destructive: Callable[[Definition], bool] = lambda definition: False


def operation_of(method: str) -> Operation:
    """Raises Rejected for a method that nobody may ask for."""
    try:
        return OPERATIONS[method]
    except KeyError as problem:
        raise Rejected("mcpadmin does not send this method for a person.") from problem


def words_of(method: str) -> Words:
    """Also of a call whose method this version does not know."""
    found = OPERATIONS.get(method, OPERATIONS[methods.TOOLS_CALL])
    return found.words


def check_length(target: str) -> None:
    """Raises Rejected. What no database and no wire takes is refused before either sees it."""
    try:
        size = len(target.encode())
    except UnicodeEncodeError as problem:
        raise Rejected("The name holds half a character (a lone surrogate).") from problem
    if not target or size > TARGET_BYTES or "\x00" in target:
        raise Rejected(f"A name has between 1 and {TARGET_BYTES:,} bytes and no NUL character.")


# --- tools -----------------------------------------------------------------------------------------------------------
def schema_of(tool: Definition) -> Any:
    return tool.get("inputSchema", {"type": "object"})


def _read_tool_arguments(target: str, tool: Definition, given: Given) -> Read:
    return read_arguments(schema_of(tool), given)


def is_destructive(tool: Definition) -> bool:
    """Only what the server says itself; the specification's default (true) would make every tool ask."""
    annotations = tool.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True


# --- completion ------------------------------------------------------------------------------------------------------
_REFERENCES = {"ref/prompt": DefinitionKind.PROMPT, "ref/resource": DefinitionKind.RESOURCE_TEMPLATE}


def completion_target(kind: DefinitionKind, key: str) -> str:
    """The reference as one text: what a completion is about."""
    word = "ref/prompt" if kind == DefinitionKind.PROMPT else "ref/resource"
    return f"{word}:{key}"


def completion_reference(target: str) -> dict[str, str]:
    """The reference as the protocol writes it."""
    word, _, key = target.partition(":")
    return {"type": word, "name" if word == "ref/prompt" else "uri": key}


def _completed(target: str) -> tuple[DefinitionKind, str]:
    word, _, key = target.partition(":")
    if word not in _REFERENCES or not key:
        raise Rejected("A completion names ref/prompt:<name> or ref/resource:<URI template>.")
    return _REFERENCES[word], key


OPERATIONS: Mapping[str, Operation] = {
    found.method: found
    for found in (
        Operation(
            methods.TOOLS_CALL,
            _TOOL_WORDS,
            lambda target: (DefinitionKind.TOOL, target),
            _read_tool_arguments,
            missing="offers no tool of this name now. Refresh its list, or choose another.",
            destructive=is_destructive,
        ),
        Operation(
            methods.RESOURCES_READ,
            Words("resource", "Read again", "Open the resource"),
            lambda target: (DefinitionKind.RESOURCE, target),
            lambda target, definition, given: (plain_arguments.of_resource(target, given), ""),
            check_target=plain_arguments.check_uri,
        ),
        Operation(
            methods.PROMPTS_GET,
            Words("prompt", "Get again", "Open the prompt"),
            lambda target: (DefinitionKind.PROMPT, target),
            lambda target, definition, given: (plain_arguments.of_prompt(definition, given), ""),
            missing="offers no prompt of this name now. Refresh its list, or choose another.",
        ),
        Operation(
            methods.COMPLETE,
            Words("completion", "Ask again", "Open its form"),
            _completed,
            lambda target, definition, given: (plain_arguments.of_completion(given), ""),
            missing="does not offer what this completion is about now.",
        ),
    )
}
