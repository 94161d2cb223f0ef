"""Judges a server's era by its answer to the probe `server/discover`, and its revision by its answer to `initialize`.

Source: 2026-07-28 *Lifecycle / Backwards compatibility*; behavior of real servers.
"""

from dataclasses import dataclass
from typing import Any, Final

from . import jsonrpc, versions
from .errors import Fault, HttpError, IncompatibleVersion, McpError, ProtocolError, RpcError, TransportError

ProbeOutcome = dict[str, Any] | McpError
SILENT: Final = (
    "If it needs longer to start, raise its connect timeout. If it is an old server that stops responding after a "
    "request that it does not know, set its era to legacy."
)


@dataclass(frozen=True, slots=True)
class Modern:
    revision: str
    discovered: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Legacy:
    """`fresh`: the peer is gone, use a new connection. `because`: text for users. `certain`: worth remembering."""

    because: str
    fresh: bool = False
    doubt: McpError | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True)
class ProbeAgain:
    revision: str
    because: str


@dataclass(frozen=True, slots=True)
class Fatal:
    error: McpError


EraDecision = Modern | Legacy | ProbeAgain | Fatal


def probe_verdict(outcome: ProbeOutcome, *, asked: str, exchange: bool) -> EraDecision:
    """The verdict on one probe. `asked`: the revision of the probe. `exchange`: HTTP, where silence and a lost
    connection say nothing about the era."""
    if isinstance(outcome, dict):
        return _result(outcome)
    if isinstance(outcome, RpcError):
        return _rpc_error(outcome, asked)
    if isinstance(outcome, HttpError):
        return _http(outcome)
    if isinstance(outcome, ProtocolError):
        return Legacy(f"the probe was not answered with an MCP message ({outcome.fault})")
    if isinstance(outcome, TransportError) and not exchange:
        return _gone(outcome)
    if outcome.fault is Fault.TIMEOUT and outcome.may_have_run:
        outcome.detail = f"{outcome.detail} {SILENT}"
    return Fatal(outcome)


def _gone(error: TransportError) -> EraDecision:
    """A process or connection that ends at the unknown request belongs to an old server. One that stays alive but
    silent may just be slow, and may be of either era."""
    if error.fault is Fault.TIMEOUT:
        error.detail = f"{error.detail} {SILENT}"
        return Fatal(error)
    if error.fault is Fault.STDOUT_NOISE:
        return Fatal(error)
    killed = error.exit_code is not None and (error.exit_code < 0 or error.exit_code > 128)
    return Legacy(f"the probe ended in {error.fault}", fresh=True, doubt=error, certain=not killed)


def _result(result: dict[str, Any]) -> EraDecision:
    offered = result.get("supportedVersions")
    if not isinstance(offered, list):
        return Legacy("the response to server/discover is not a discovery result")
    modern = versions.best_mutual(offered, versions.MODERN)
    if modern:
        return Modern(modern, result)
    if versions.best_mutual(offered, versions.LEGACY):
        return Legacy("the server lists only legacy revisions")
    return Fatal(_incompatible(offered))


def _rpc_error(error: RpcError, asked: str) -> EraDecision:
    if error.code == jsonrpc.UNSUPPORTED_VERSION:
        return _unsupported(error)
    if error.code == jsonrpc.HEADER_MISMATCH:
        return ProbeAgain(asked, "our headers arrived altered; a proxy may change MCP headers")
    if error.code == jsonrpc.MISSING_CAPABILITY:
        return Fatal(_lacking(error))
    doubt = error if (error.http_status or 0) >= 500 else None
    return Legacy(f"the probe was answered with error {error.code}", doubt=doubt)


def _lacking(error: RpcError) -> RpcError:
    """We declare everything this client may use, so a person has to allow what the server requires."""
    required = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    names = ", ".join(_required(required)[:10]) if isinstance(required, dict) else ""
    error.detail = f"The server requires a capability that this client does not offer: {names or error.message}."
    return error


def _required(capabilities: dict[str, Any]) -> list[str]:
    """The names of the capabilities, or of the features if specific features are required."""
    return [
        f"{str(name)[:40]}.{str(feature)[:40]}" if feature else str(name)[:40]
        for name, features in capabilities.items()
        for feature in (features if isinstance(features, dict) and features else ("",))
    ]


def _unsupported(error: RpcError) -> EraDecision:
    offered = error.data.get("supported") if isinstance(error.data, dict) else None
    if not isinstance(offered, list) or not offered:
        return Legacy("the server does not know our modern revision and names no other")
    modern = versions.best_mutual(offered, versions.MODERN)
    if modern:
        return ProbeAgain(modern, "the server named the revisions that it supports")
    if versions.best_mutual(offered, versions.LEGACY):
        return Legacy("the server lists only legacy revisions")
    return Fatal(_incompatible(offered))


def named_legacy(refusal: ProbeOutcome, *, besides: str = "") -> str | None:
    """Our best legacy revision that a refusal names, except `besides` (the one that was refused), or None."""
    return versions.best_mutual(_named(refusal), tuple(name for name in versions.LEGACY if name != besides))


def nothing_in_common(refusal: McpError) -> IncompatibleVersion | None:
    """The error for a refused `initialize` that names revisions, but none of ours. None for any other refusal."""
    offered = _named(refusal)
    if not offered or versions.best_mutual(offered, (*versions.MODERN, *versions.LEGACY)):
        return None
    return _incompatible(offered)


def _named(refusal: ProbeOutcome) -> list[Any]:
    """The revisions that a refusal names."""
    if not isinstance(refusal, RpcError) or refusal.code not in (jsonrpc.UNSUPPORTED_VERSION, jsonrpc.INVALID_PARAMS):
        return []
    offered = refusal.data.get("supported") if isinstance(refusal.data, dict) else None
    return offered if isinstance(offered, list) else []


def _http(error: HttpError) -> EraDecision:
    decided_elsewhere = error.permanent or error.status in (403, 429) or error.status < 400 or error.status >= 500
    return Fatal(error) if decided_elsewhere else Legacy(f"the probe was answered with HTTP {error.status}")


def _incompatible(offered: list[Any]) -> IncompatibleVersion:
    names = tuple(str(name)[:32] for name in offered[:10])
    ours = ", ".join((*versions.MODERN, *versions.LEGACY))
    theirs = f"supports {', '.join(names)}" if names else "names no revision"
    return IncompatibleVersion(f"The server {theirs}; this client supports {ours}.", names)


def legacy_revision(result: dict[str, Any]) -> str:
    """The revision of an `initialize` result, or IncompatibleVersion."""
    name = result.get("protocolVersion")
    if isinstance(name, str) and name in versions.LEGACY:
        return name
    raise _incompatible([name] if isinstance(name, str) else [])
