"""The opening of a session as a generator: it yields what to do and is sent what came of it.

Drive it with `next()` and `send()`; it returns Opened or raises McpError. Nothing here waits.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import jsonrpc, versions
from .capabilities import META, Implementation, in_force
from .errors import HttpError, IncompatibleVersion, McpError, ProtocolError, RpcError
from .negotiation import Fatal, Legacy, Modern, Outcome, ProbeAgain, judge, legacy_revision
from .versions import REVISIONS, Era, Revision

EraSetting = Literal["auto", "legacy", "modern"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Send `server/discover` of this revision; its outcome comes back."""

    revision: Revision


@dataclass(frozen=True, slots=True)
class Renew:
    """Close this connection and open a new one."""


@dataclass(frozen=True, slots=True)
class Change:
    """Close this connection and open one of another kind to the same server; None comes back, or why it failed."""

    kind: str


@dataclass(frozen=True, slots=True)
class Initialize:
    """Send `initialize` with these parameters; its outcome comes back."""

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


Opening = Generator[Action, Outcome | None, Opened]


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
    """Settle the era (by a probe unless it is known) and open the session.

    `exchange`, `legacy_only`, `fallback`: of the transport that is open (transports.base.Transport).
    """
    if legacy_only and era == "modern":
        raise IncompatibleVersion("The server is set to the modern era, which does not have its transport.")
    known = _known_legacy(era, remembered, legacy_only=legacy_only)
    if known:
        return (yield from _fall_back(Legacy(known), info, capabilities, exchange=exchange, fallback=fallback))
    verdict = yield from _probe(exchange=exchange)
    if isinstance(verdict, Modern):
        return _discovered(verdict, capabilities)
    if era == "modern":
        raise IncompatibleVersion(f"The server is set to the modern era, but {verdict.because}.")
    if verdict.fresh:
        yield Renew()
    return (
        yield from _fall_back(verdict, info, capabilities, exchange=exchange, fallback=fallback, may_be_modern=True)
    )


def _known_legacy(era: EraSetting, remembered: Era | None, *, legacy_only: bool) -> str:
    """Why no probe is needed, in words; empty when one is."""
    if era == "legacy":
        return "the server's setting"
    if legacy_only:
        return "the transport, which only the legacy era has"
    return "what is remembered of the server" if era == "auto" and remembered is Era.LEGACY else ""


def reopening(info: Implementation, capabilities: Mapping[str, Any]) -> Opening:
    """A legacy session that the server forgot: initialise again on the same transport."""
    return _legacy(info, capabilities, "the session before it")


def _probe(*, exchange: bool) -> Generator[Action, Outcome | None, Modern | Legacy]:
    revision = versions.PREFERRED_MODERN
    for last in (False, True):
        outcome = yield Probe(REVISIONS[revision])
        assert outcome is not None  # noqa: S101  the driver always sends the outcome of a probe
        verdict = judge(outcome, asked=revision, exchange=exchange)
        if isinstance(verdict, Fatal):
            raise verdict.error
        if not isinstance(verdict, ProbeAgain):
            return verdict
        if last:
            raise _stuck(outcome, verdict)
        revision = verdict.revision
    raise AssertionError("unreachable: the second round returns or raises")


def _stuck(outcome: Outcome, verdict: ProbeAgain) -> McpError:
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
    """The legacy handshake; if it is refused, what the refusal says to try instead."""
    try:
        return (yield from _legacy(info, capabilities, verdict.because))
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
    raise IncompatibleVersion(f"The server refuses initialize, and {again.because}.")


def _changed(kind: str, refused: McpError, info: Implementation, capabilities: Mapping[str, Any]) -> Opening:
    """The server takes no `initialize` by POST: the older transport, or an error that tells of both."""
    problem = yield Change(kind)
    if not isinstance(problem, McpError):
        return (yield from _legacy(info, capabilities, "the server takes no POST here, but opens an event stream"))
    if isinstance(problem, ProtocolError) or _says_whose_fault(problem):
        _add_doubt(problem, refused)
        raise problem
    refused.detail = f"{refused.detail} HTTP+SSE was tried as well: {problem.detail}"
    raise refused


def _says_whose_fault(error: McpError) -> bool:
    return isinstance(error, HttpError) and error.status in (401, 403, 429)


def _takes_no_initialize(error: McpError) -> bool:
    """Source: 2025-11-25 *Transports / Backwards compatibility*."""
    if isinstance(error, RpcError):
        modern = _turned_modern(error) or error.code in jsonrpc.REJECTED_UNSEEN
        return error.http_status in (400, 404, 405) and not modern
    return isinstance(error, HttpError) and error.status in (400, 404, 405)


def _turned_modern(error: McpError) -> bool:
    """A slow start or a rolling deploy: the server answers `initialize` as only a modern one does."""
    return isinstance(error, RpcError) and (
        error.code == jsonrpc.UNSUPPORTED_VERSION
        or (error.code == jsonrpc.METHOD_NOT_FOUND and error.http_status == 404)
    )


def _add_doubt(error: McpError, before: McpError | None) -> None:
    """Both ways failed: say both."""
    if before is not None and before.detail not in error.detail:
        error.detail = f"{error.detail} Before that: {before.detail}"


def _legacy(info: Implementation, capabilities: Mapping[str, Any], because: str) -> Opening:
    outcome = yield Initialize(
        {
            "protocolVersion": versions.PREFERRED_LEGACY,
            "capabilities": {name: value for name, value in capabilities.items() if name != "extensions"},
            "clientInfo": info.wire(),
        }
    )
    if isinstance(outcome, McpError):
        raise outcome
    assert outcome is not None  # noqa: S101  the driver always sends the outcome of an initialize
    revision = REVISIONS[legacy_revision(outcome)]
    yield Initialized(revision)
    return Opened(
        revision,
        _object(outcome.get("serverInfo")),
        _text(outcome.get("instructions")),
        _object(outcome.get("capabilities")),
        in_force(capabilities, revision),
        because,
    )


def _discovered(verdict: Modern, capabilities: Mapping[str, Any]) -> Opened:
    result, revision = verdict.discovered, REVISIONS[verdict.revision]
    return Opened(
        revision,
        _object(_object(result.get("_meta")).get(META + "serverInfo")),
        _text(result.get("instructions")),
        _object(result.get("capabilities")),
        in_force(capabilities, revision),
        "the answer to the probe",
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
