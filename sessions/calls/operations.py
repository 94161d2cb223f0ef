"""The methods that people may send to a server, each as a call. Their differences are data in this file.

`sessions.host.calls.senders` says how a method is sent, `results` what its result looks like.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from servers.enums import DefinitionKind
from servers.schemas.input_schema import input_schema_of
from sessions.calls import plain_arguments
from sessions.calls.arguments import NO_DOUBT, ArgumentProblem, Rejected, SubmittedArguments, read_arguments
from sessions.mcp.core import methods

TARGET_BYTES = 8 * 1024
Definition = Mapping[str, Any]
#: arguments as stored, and any problem with them
Read = tuple[Any, ArgumentProblem]


@dataclass(frozen=True)
class OperationTexts:
    """`noun`: what a target is called. `open`: label of the link to its page, `edit`: to its form with these arguments.

    `unknown_outcome` is appended to a failure without a response, `refused` to a rejection by the server. `cancelled`
    says what is unclear after a cancellation. `remedy` says what to do while the outcome is unknown.
    `empty`: for a result with nothing in it.
    """

    noun: str
    again: str
    open: str
    edit: str = ""
    unknown_outcome: str = "The server may have received it."
    refused: str = "The server rejected the request."
    cancelled: str = "so the server may have continued."
    remedy: str = "This request does not change anything on the server, so it is safe to repeat."
    empty: str = "The server returned no content."


_TOOL_WORDS = OperationTexts(
    noun="tool",
    again="Run again",
    open="Open the tool",
    edit="Edit and run",
    unknown_outcome="The tool may have run.",
    refused="The server rejected the request; there is no result from the tool.",
    cancelled="so the tool may have run partially.",
    remedy="Check the server to see whether it ran. Run it again only if it did not, or if running it twice does no harm.",
    empty="The tool returned no content.",
)


@dataclass(frozen=True)
class Operation:
    """`place`: the server's list that contains a target, and the key in it. `missing`: the error if it is not listed;
    empty if it need not be."""

    method: str
    words: OperationTexts
    place: Callable[[str], tuple[DefinitionKind, str]]
    read: Callable[[str, Definition, SubmittedArguments], Read]
    missing: str = ""
    check_target: Callable[[str], None] = lambda target: None
    destructive: Callable[[Definition], bool] = lambda definition: False


def operation_of(method: str) -> Operation:
    """Raises Rejected for a method that people may not send."""
    try:
        return OPERATIONS[method]
    except KeyError as problem:
        raise Rejected("mcpadmin does not send this method on request.") from problem


def texts_of(method: str) -> OperationTexts:
    """Also works for a call whose method this version does not know."""
    found = OPERATIONS.get(method, OPERATIONS[methods.TOOLS_CALL])
    return found.words


def check_length(target: str) -> None:
    """Raises Rejected for a target that a database or a transport could not handle."""
    try:
        size = len(target.encode())
    except UnicodeEncodeError as problem:
        raise Rejected("The name contains an unpaired surrogate.") from problem
    if not target or size > TARGET_BYTES or "\x00" in target:
        raise Rejected(f"A name must have 1 to {TARGET_BYTES:,} bytes (a fixed limit) and no NUL character.")


# --- tools -----------------------------------------------------------------------------------------------------------
def _read_tool_arguments(target: str, tool: Definition, given: SubmittedArguments) -> Read:
    return read_arguments(input_schema_of(tool), given)


def is_destructive(tool: Definition) -> bool:
    """Whether the tool is marked destructive. Only an explicit hint counts: the specification's default (true) would
    make every tool ask for confirmation."""
    annotations = tool.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True


# --- completion ------------------------------------------------------------------------------------------------------
_REFERENCES = {"ref/prompt": DefinitionKind.PROMPT, "ref/resource": DefinitionKind.RESOURCE_TEMPLATE}


def completion_target(kind: DefinitionKind, key: str) -> str:
    """The reference of a completion as text: the target of the call."""
    word = "ref/prompt" if kind == DefinitionKind.PROMPT else "ref/resource"
    return f"{word}:{key}"


def completion_reference(target: str) -> dict[str, str]:
    """The reference in protocol format."""
    word, _, key = target.partition(":")
    return {"type": word, "name" if word == "ref/prompt" else "uri": key}


def _completed(target: str) -> tuple[DefinitionKind, str]:
    word, _, key = target.partition(":")
    if word not in _REFERENCES or not key:
        raise Rejected("A completion must name ref/prompt:<name> or ref/resource:<URI template>.")
    return _REFERENCES[word], key


OPERATIONS: Mapping[str, Operation] = {
    found.method: found
    for found in (
        Operation(
            methods.TOOLS_CALL,
            _TOOL_WORDS,
            lambda target: (DefinitionKind.TOOL, target),
            _read_tool_arguments,
            missing="no longer offers a tool with this name. Reload the list or choose another tool.",
            destructive=is_destructive,
        ),
        Operation(
            methods.RESOURCES_READ,
            OperationTexts("resource", "Read again", "Open the resource", "Edit and read"),
            lambda target: (DefinitionKind.RESOURCE, target),
            lambda target, definition, given: (plain_arguments.of_resource(target, given), NO_DOUBT),
            check_target=plain_arguments.check_uri,
        ),
        Operation(
            methods.PROMPTS_GET,
            OperationTexts("prompt", "Get again", "Open the prompt", "Edit and get"),
            lambda target: (DefinitionKind.PROMPT, target),
            lambda target, definition, given: (plain_arguments.of_prompt(definition, given), NO_DOUBT),
            missing="no longer offers a prompt with this name. Reload the list or choose another prompt.",
        ),
        Operation(
            methods.COMPLETE,
            OperationTexts("completion", "Ask again", "Open its form"),
            _completed,
            lambda target, definition, given: (plain_arguments.of_completion(given), NO_DOUBT),
            missing="no longer offers the prompt or template of this completion.",
        ),
    )
}
