"""One modern request (2026-07-28): stateless, so it carries everything that it needs.

Source: 2026-07-28 *Basic / Request metadata*, *Streamable HTTP / Request metadata headers*, *Lifecycle / Discovery*.
Order of the checks: metadata (-32602), headers (-32020), version (-32022), method (404).
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ..core import headers as core_headers
from ..core import jsonrpc, methods, versions
from ..core.capabilities import META, Implementation
from ..core.errors import InvalidRequest
from ..core.events import ListKind
from ..core.headers import Mirrored
from ..core.jsonrpc import Notification, Request, RequestId
from ..core.listening import SUBSCRIPTION_ID
from .posted import VERSION, Headers, Posted, message_of, progress_token
from .refusals import Refusal, invalid_params, invalid_request

METHODS: Final = frozenset(
    {
        methods.DISCOVER,
        methods.TOOLS_LIST,
        methods.TOOLS_CALL,
        methods.RESOURCES_LIST,
        methods.TEMPLATES_LIST,
        methods.RESOURCES_READ,
        methods.PROMPTS_LIST,
        methods.PROMPTS_GET,
        methods.COMPLETE,
        methods.LISTEN,
    }
)
_SENTINEL: Final = re.compile(r"=\?base64\?(.*)\?=\Z", re.IGNORECASE | re.DOTALL)
_VISIBLE: Final = re.compile(r"[ -~\t]*\Z")
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,99})?(?:[eE][+-]?[0-9]{1,3})?\Z")
#: a listen request with more resources is truncated; the acknowledgement says which ones remain
LISTENED_RESOURCES: Final = 500


@dataclass(frozen=True, slots=True)
class ModernRequest:
    """`capabilities` are those that the agent declared for this request alone. `client`: name and version as the agent
    gave them; trust neither."""

    id: RequestId
    method: str
    params: dict[str, Any]
    revision: str
    capabilities: dict[str, Any]
    client: dict[str, Any]
    progress_token: RequestId | None
    log_level: str | None


def read(posted: Posted, headers: Headers) -> ModernRequest | Notification:
    """The one message of a modern POST. Raises Refusal. A notification is accepted and has no effect."""
    if posted.batch:
        raise invalid_request("Only revision 2025-03-26 has batches. Send one message per request.")
    message = message_of(posted.values[0])
    if isinstance(message, Notification):
        return message
    if not isinstance(message, Request):
        raise invalid_request("A response is not accepted: a modern server sends no requests.")
    try:
        return _read(message, headers)
    except Refusal as refusal:
        raise refusal.of(message.id) from None


def _read(message: Request, headers: Headers) -> ModernRequest:
    meta = message.params.get("_meta")
    meta = meta if isinstance(meta, dict) else {}
    version, declared = meta.get(META + "protocolVersion"), meta.get(META + "clientCapabilities")
    if not isinstance(version, str) or not isinstance(declared, dict):
        words = f"Each request needs {META}protocolVersion (a string) and {META}clientCapabilities (an object) in params._meta."
        raise invalid_params(words, status=400)
    _check_headers(message, version, headers)
    if version not in versions.MODERN:
        data = {"supported": list(versions.MODERN), "requested": version[:64]}
        raise Refusal(400, jsonrpc.UNSUPPORTED_VERSION, "This protocol version is not supported.", data)
    if message.method not in METHODS:
        raise Refusal(404, jsonrpc.METHOD_NOT_FOUND, f"Method not found: {message.method[:100]}")
    level = meta.get(META + "logLevel")
    if level is not None and level not in methods.LOG_LEVELS:
        raise invalid_params("The log level is not one of RFC 5424.", status=400)
    client = meta.get(META + "clientInfo")
    return ModernRequest(
        id=message.id,
        method=message.method,
        params=message.params,
        revision=version,
        capabilities=declared,
        client=client if isinstance(client, dict) else {},
        progress_token=progress_token(message.params),
        log_level=level,
    )


# --- headers -----------------------------------------------------------------------------------------------------------
def _check_headers(message: Request, version: str, headers: Headers) -> None:
    _same("MCP-Protocol-Version", headers.get(VERSION), version)
    _same("Mcp-Method", headers.get("mcp-method"), message.method)
    key = methods.NAMED_BY.get(message.method)
    if key is not None and isinstance(name := message.params.get(key), str):
        _same("Mcp-Name", headers.get("mcp-name"), name)


def _same(name: str, given: str | None, expected: str) -> None:
    if given is None:
        raise _mismatch(f"The header {name} is missing.")
    if _decoded(name, given) != expected:
        raise _mismatch(f"The header {name} differs from the body.")


def _decoded(name: str, value: str) -> str:
    if not _VISIBLE.match(value):
        raise _mismatch(f"The header {name} contains characters that are not allowed in a header.")
    value = value.strip(" \t")
    if (sentinel := _SENTINEL.match(value)) is None:
        return value
    try:
        return base64.b64decode(sentinel.group(1), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError) as problem:
        raise _mismatch(f"The header {name} is not valid base64 of UTF-8.") from problem


def _mismatch(words: str) -> Refusal:
    return Refusal(400, jsonrpc.HEADER_MISMATCH, words)


def check_mirrored(arguments: Any, mirrored: tuple[Mirrored, ...], headers: Headers) -> None:
    """The `Mcp-Param-` headers of a tool call against its arguments. Integers are compared as numbers. Raises
    Refusal."""
    for entry in mirrored:
        name = f"Mcp-Param-{entry.header}"
        params = {"name": "", "arguments": arguments}
        try:
            expected = core_headers.request_headers(methods.TOOLS_CALL, params, "", (entry,)).get(name)
        except InvalidRequest as problem:
            raise _mismatch(problem.detail) from problem
        given = headers.get(name.lower())
        if (given is None) != (expected is None):
            raise _mismatch(f"The header {name} {'is missing' if given is None else 'has no argument in the body'}.")
        if given is None or expected is None:
            continue
        was, should = _decoded(name, given), _decoded(name, expected)
        if was != should and not (entry.type == "integer" and _number(was) == _number(should)):
            raise _mismatch(f"The header {name} differs from the body.")


def _number(text: str) -> Decimal | str:
    """Exact, and only in JSON's form: Python would also accept underscores, spaces and digits of other scripts."""
    return Decimal(text) if _JSON_NUMBER.match(text) else text


# --- discovery and listening -------------------------------------------------------------------------------------------
def discovery(info: Implementation, capabilities: Mapping[str, Any], instructions: str) -> dict[str, Any]:
    """The result of `server/discover`. It depends on the permissions of the token, so no one else may reuse it."""
    body: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": list(versions.MODERN),
        "capabilities": dict(capabilities),
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {META + "serverInfo": info.wire()},
    }
    return body | {"instructions": instructions} if instructions else body


@dataclass(frozen=True, slots=True)
class Listen:
    """The notifications that one `subscriptions/listen` requests."""

    lists: frozenset[str]
    resources: tuple[str, ...]


_LIST_FILTERS: Final = {
    methods.LIST_FILTERS[ListKind.TOOLS]: "tools",
    methods.LIST_FILTERS[ListKind.RESOURCES]: "resources",
    methods.LIST_FILTERS[ListKind.PROMPTS]: "prompts",
}


def listen_of(params: Mapping[str, Any]) -> Listen:
    """Unknown kinds are not granted, as the acknowledgement shows. Raises Refusal."""
    asked = params.get("notifications")
    if not isinstance(asked, dict):
        raise invalid_params("subscriptions/listen needs params.notifications, an object.", status=400)
    uris = asked.get("resourceSubscriptions", [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise invalid_params("resourceSubscriptions must be a list of URIs.", status=400)
    lists = frozenset(kind for name, kind in _LIST_FILTERS.items() if asked.get(name) is True)
    return Listen(lists, tuple(dict.fromkeys(uris))[:LISTENED_RESOURCES])


def acknowledged(identity: RequestId, granted: Listen) -> bytes:
    filters: dict[str, Any] = {name: True for name, kind in _LIST_FILTERS.items() if kind in granted.lists}
    if granted.resources:
        filters["resourceSubscriptions"] = list(granted.resources)
    return jsonrpc.notification(methods.ACKNOWLEDGED, of_listen(identity, {"notifications": filters}))


def of_listen(identity: RequestId, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a notification, marked as belonging to a listen request."""
    return {**params, "_meta": {SUBSCRIPTION_ID: identity}}


def listen_ended(identity: RequestId) -> bytes:
    """The orderly end: the agent may listen again."""
    return jsonrpc.result(identity, {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: identity}})
