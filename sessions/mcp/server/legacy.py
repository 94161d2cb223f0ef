"""Legacy requests (2025-03-26 to 2025-11-25): `initialize` opens a session, which later requests name in a header.

Source: *Lifecycle* and *Transports / Streamable HTTP* of each revision; batches: 2025-03-26 *Basic / Messages*.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..core import jsonrpc, methods, versions
from ..core.capabilities import Implementation
from ..core.jsonrpc import Notification, Request, Response
from ..core.versions import REVISIONS
from .posted import VERSION, Headers, Posted, id_of, message_of
from .refusals import Refusal, invalid_params, invalid_request

#: 2024-11-05 has another transport
SERVED: Final = tuple(name for name in versions.LEGACY if name != "2024-11-05")
BATCH: Final = 50

METHODS: Final = frozenset(
    {
        methods.PING,
        methods.SET_LEVEL,
        methods.TOOLS_LIST,
        methods.TOOLS_CALL,
        methods.RESOURCES_LIST,
        methods.TEMPLATES_LIST,
        methods.RESOURCES_READ,
        methods.RESOURCES_SUBSCRIBE,
        methods.RESOURCES_UNSUBSCRIBE,
        methods.PROMPTS_LIST,
        methods.PROMPTS_GET,
        methods.COMPLETE,
    }
)


@dataclass(frozen=True, slots=True)
class Opening:
    """An `initialize`: the agreed revision, and what the agent says about itself (trust neither name nor version)."""

    request: Request
    revision: str
    capabilities: dict[str, Any]
    client: dict[str, Any]


def opens(posted: Posted) -> bool:
    """Whether it is an `initialize`, valid or not."""
    value = posted.values[0]
    return not posted.batch and isinstance(value, dict) and value.get("method") == methods.INITIALIZE


def opening_of(posted: Posted) -> Opening:
    """The `initialize` in a POST for which `opens` is true. Raises Refusal."""
    message = message_of(posted.values[0])
    if not isinstance(message, Request):
        raise invalid_request("initialize is a request: it needs an id.")
    version, declared = message.params.get("protocolVersion"), message.params.get("capabilities", {})
    client = message.params.get("clientInfo", {})
    if not isinstance(version, str) or not isinstance(declared, dict) or not isinstance(client, dict):
        words = "initialize needs protocolVersion (a string), capabilities and clientInfo (objects)."
        raise invalid_params(words).of(message.id)
    agreed = version if version in SERVED else versions.PREFERRED_LEGACY
    return Opening(message, agreed, declared, client)


def initialized(
    opening: Opening, info: Implementation, capabilities: Mapping[str, Any], instructions: str
) -> dict[str, Any]:
    """The result of `initialize`."""
    body = {"protocolVersion": opening.revision, "capabilities": dict(capabilities), "serverInfo": info.wire()}
    return body | {"instructions": instructions} if instructions else body


def check_version(headers: Headers, revision: str) -> None:
    """A client of 2025-03-26 sends no version; any header must name the agreed one. Raises Refusal."""
    given = headers.get(VERSION)
    if given is None or given == revision:
        return
    if given in SERVED and not REVISIONS[revision].version_header:
        return
    raise invalid_request(f"MCP-Protocol-Version must be {revision}, as agreed by initialize.")


Read = Request | Notification | Response | Refusal


def read(posted: Posted, headers: Headers, revision: str) -> list[Read]:
    """The messages of a POST to a session of `revision`. A message that is refused on its own is replaced by its
    Refusal. A Refusal of the whole POST is raised."""
    check_version(headers, revision)
    if not posted.batch:
        message = message_of(posted.values[0])
        return [_known(message)]
    if not REVISIONS[revision].batches:
        raise invalid_request("Only revision 2025-03-26 has batches. Send one message per request.")
    if len(posted.values) > BATCH:
        raise invalid_request(f"A batch contains more than {BATCH} messages.")
    return [_of_batch(value) for value in posted.values]


def _of_batch(value: Any) -> Read:
    if isinstance(value, dict) and value.get("method") == methods.INITIALIZE:
        return invalid_request("initialize must not be part of a batch.").of(id_of(value))
    try:
        return _known(message_of(value))
    except Refusal as refusal:
        return refusal


def _known(message: jsonrpc.Message) -> Read:
    if isinstance(message, Request) and message.method not in METHODS:
        words = f"Method not found: {message.method[:100]}"
        return Refusal(200, jsonrpc.METHOD_NOT_FOUND, words).of(message.id)
    return message
