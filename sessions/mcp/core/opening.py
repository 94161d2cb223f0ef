"""Opens a session, as a generator: it yields actions, and the driver sends their outcomes back.

Drive it with `next()` and `send()`. It returns Opened or raises McpError. Nothing here waits.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import jsonrpc, versions
from .capabilities import META, Implementation, in_force
from .errors import HttpError, IncompatibleVersion, McpError, ProtocolError, RpcError
from .negotiation import (
    Fatal,
    Legacy,
    Modern,
    ProbeAgain,
    ProbeOutcome,
    legacy_revision,
    named_legacy,
    nothing_in_common,
    probe_verdict,
)
from .versions import REVISIONS, Era, Revision

EraSetting = Literal["auto", "legacy", "modern"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Send `server/discover` of this revision; the driver sends back the outcome.

    `otherwise`: parameters of an `initialize` to send on the same connection if the probe stays unanswered for a while.
    If only that is answered, the driver sends back Greeted."""

    revision: Revision
    otherwise: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Greeted:
    """The result of an `initialize` that the server answered instead of the probe before it."""

    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Renew:
    """Close this connection and open a new one."""


@dataclass(frozen=True, slots=True)
class Change:
    """Close this connection and open one of another kind to the same server. Sent back: None, or the failure."""

    kind: str


@dataclass(frozen=True, slots=True)
class Initialize:
    """Send `initialize` with these parameters, unless it already followed the probe. Sent back: the outcome."""

    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Initialized:
    """Send `notifications/initialized` under this revision."""

    revision: Revision


Action = Probe | Renew | Change | Initialize | Initialized


@dataclass(frozen=True, slots=True)
class Opened:
    revision: Revision
    server_info: dict[str, Any]
    instructions: str
    server_capabilities: dict[str, Any]
    client_capabilities: dict[str, Any]
    decided_by: str
    #: False when a time-out decided the era: then it is not worth remembering
    certain: bool = True


Came = ProbeOutcome | Greeted | None
Opening = Generator[Action, Came, Opened]


def opening(
    era: EraSetting,
    info: Implementation,
    capabilities: Mapping[str, Any],
    *,
    exchange: bool,
    legacy_only: bool = False,
    fallback: str = "",
    remembered: Era | None = None,
) -> Opening:
    """Determine the era (with a probe unless it is known) and open the session.

    `exchange`, `legacy_only`, `fallback`: attributes of the open transport (transports.base.Transport).
    """
    if legacy_only and era == "modern":
        raise IncompatibleVersion("The server is set to the modern era, which does not support its transport.")
    known = _known_legacy(era, remembered, legacy_only=legacy_only)
    if known:
        return (yield from _fall_back(Legacy(known), info, capabilities, exchange=exchange, fallback=fallback))
    otherwise = None if exchange or era == "modern" else _parameters(info, capabilities)
    verdict = yield from _probe(exchange=exchange, otherwise=otherwise)
    if isinstance(verdict, Modern):
        return _discovered(verdict, capabilities)
    if isinstance(verdict, Greeted):
        return (
            yield from _greeted(verdict.result, capabilities, "response to initialize; none to server/discover", False)
        )
    if era == "modern":
        raise IncompatibleVersion(f"The server is set to the modern era, but {verdict.because}.")
    if verdict.fresh:
        yield Renew()
    return (
        yield from _fall_back(verdict, info, capabilities, exchange=exchange, fallback=fallback, may_be_modern=True)
    )


def _known_legacy(era: EraSetting, remembered: Era | None, *, legacy_only: bool) -> str:
    """Why no probe is needed, in words. Empty if one is needed."""
    if era == "legacy":
        return "its protocol era setting"
    if legacy_only:
        return "its transport, which exists only in the legacy era"
    return "an earlier connection" if era == "auto" and remembered is Era.LEGACY else ""


def reopening(info: Implementation, capabilities: Mapping[str, Any]) -> Opening:
    """Initialize again on the same transport, after the server forgot a legacy session."""
    return _legacy(info, capabilities, "the previous session")


def _probe(
    *, exchange: bool, otherwise: dict[str, Any] | None = None
) -> Generator[Action, Came, Modern | Legacy | Greeted]:
    revision = versions.PREFERRED_MODERN
    for last in (False, True):
        # The first answer was an error of the modern era, so the second probe has no `initialize` as an alternative.
        outcome = yield Probe(REVISIONS[revision], None if last else otherwise)
        assert outcome is not None  # noqa: S101  the driver always sends the outcome of a probe
        if isinstance(outcome, Greeted):
            return outcome
        verdict = probe_verdict(outcome, asked=revision, exchange=exchange)
        if isinstance(verdict, Fatal):
            raise verdict.error
        if not isinstance(verdict, ProbeAgain):
            return verdict
        if last:
            if legacy := named_legacy(outcome):
                return Legacy(f"the server refuses the modern revision that it names, and names {legacy} as well")
            raise _stuck(outcome, verdict)
        revision = verdict.revision
    raise AssertionError("unreachable: the second round returns or raises")


def _stuck(outcome: ProbeOutcome, verdict: ProbeAgain) -> McpError:
    if isinstance(outcome, RpcError):
        outcome.detail = f"{outcome.message} ({verdict.because})"
        return outcome
    return IncompatibleVersion(f"The server refuses the revision that it offered: {verdict.because}.")


def _fall_back(
    verdict: Legacy,
    info: Implementation,
    capabilities: Mapping[str, Any],
    *,
    exchange: bool,
    fallback: str,
    may_be_modern: bool = False,
) -> Opening:
    """The legacy handshake. If the server refuses it, try what the refusal suggests."""
    try:
        return (yield from _legacy(info, capabilities, verdict.because, verdict.certain))
    except McpError as exc:
        refused = exc
    if may_be_modern and _turned_modern(refused):
        return (yield from _once_more(capabilities, exchange=exchange))
    if fallback and _takes_no_initialize(refused):
        return (yield from _changed(fallback, refused, info, capabilities))
    _add_doubt(refused, verdict.doubt)
    raise refused


def _once_more(capabilities: Mapping[str, Any], *, exchange: bool) -> Opening:
    if not exchange:
        yield Renew()
    again = yield from _probe(exchange=exchange)
    if isinstance(again, Modern):
        return _discovered(again, capabilities)
    assert isinstance(again, Legacy)  # noqa: S101  nothing was sent beside the probe
    raise IncompatibleVersion(f"The server refuses initialize, and {again.because}.")


def _changed(kind: str, refused: McpError, info: Implementation, capabilities: Mapping[str, Any]) -> Opening:
    """The server accepts no `initialize` by POST: try the older transport, or raise an error that covers both."""
    problem = yield Change(kind)
    if not isinstance(problem, McpError):
        return (
            yield from _legacy(info, capabilities, "the server does not accept POST here, but opens an event stream")
        )
    if isinstance(problem, ProtocolError) or _says_whose_fault(problem):
        _add_doubt(problem, refused)
        raise problem
    refused.detail = f"{refused.detail} HTTP+SSE was tried as well: {problem.detail}"
    raise refused


def _says_whose_fault(error: McpError) -> bool:
    return isinstance(error, HttpError) and (error.permanent or error.status in (403, 429))


def _takes_no_initialize(error: McpError) -> bool:
    """Source: 2025-11-25 *Transports / Backwards compatibility*."""
    if isinstance(error, RpcError):
        modern = _turned_modern(error) or error.code in jsonrpc.REJECTED_UNSEEN
        return error.http_status in (400, 404, 405) and not modern
    return isinstance(error, HttpError) and error.status in (400, 404, 405)


def _turned_modern(error: McpError) -> bool:
    """The server rejects `initialize` as only a modern one does: after a slow start or during a rolling deploy."""
    return isinstance(error, RpcError) and (
        error.code == jsonrpc.UNSUPPORTED_VERSION
        or (error.code == jsonrpc.METHOD_NOT_FOUND and error.http_status == 404)
    )


def _add_doubt(error: McpError, before: McpError | None) -> None:
    """Both attempts failed: mention both."""
    if before is not None and before.detail not in error.detail:
        error.detail = f"{error.detail} Before that: {before.detail}"


def _parameters(
    info: Implementation, capabilities: Mapping[str, Any], revision: str = versions.PREFERRED_LEGACY
) -> dict[str, Any]:
    return {
        "protocolVersion": revision,
        "capabilities": {name: value for name, value in capabilities.items() if name != "extensions"},
        "clientInfo": info.wire(),
    }


def _legacy(info: Implementation, capabilities: Mapping[str, Any], because: str, certain: bool = True) -> Opening:
    outcome = yield Initialize(_parameters(info, capabilities))
    if isinstance(outcome, RpcError) and (named := named_legacy(outcome, besides=versions.PREFERRED_LEGACY)):
        outcome = yield Initialize(_parameters(info, capabilities, named))
    if isinstance(outcome, McpError):
        raise nothing_in_common(outcome) or outcome
    assert isinstance(outcome, dict)  # noqa: S101  the driver always sends the outcome of an initialize
    return (yield from _greeted(outcome, capabilities, because, certain))


def _greeted(result: dict[str, Any], capabilities: Mapping[str, Any], because: str, certain: bool) -> Opening:
    """The rest of the legacy handshake."""
    revision = REVISIONS[legacy_revision(result)]
    yield Initialized(revision)
    return Opened(
        revision,
        _object(result.get("serverInfo")),
        _text(result.get("instructions")),
        _object(result.get("capabilities")),
        in_force(capabilities, revision),
        because,
        certain,
    )


def _discovered(verdict: Modern, capabilities: Mapping[str, Any]) -> Opened:
    result, revision = verdict.discovered, REVISIONS[verdict.revision]
    return Opened(
        revision,
        _object(_object(result.get("_meta")).get(META + "serverInfo")),
        _text(result.get("instructions")),
        _object(result.get("capabilities")),
        in_force(capabilities, revision),
        "response to server/discover",
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
