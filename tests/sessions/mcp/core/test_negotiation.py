"""The answer to the probe decides a server's era: the rules, and the opening driven step by step."""

from typing import Any

import pytest

from sessions.mcp.core.capabilities import Implementation, in_force
from sessions.mcp.core.errors import (
    AddressRefused,
    Fault,
    HttpError,
    IncompatibleVersion,
    McpError,
    ProtocolError,
    RpcError,
    TransportError,
)
from sessions.mcp.core.negotiation import EraDecision, Fatal, Legacy, Modern, ProbeAgain, probe_verdict
from sessions.mcp.core.opening import Change, Greeted, Initialize, Initialized, Opened, Probe, Renew, opening
from sessions.mcp.core.versions import REVISIONS, Era

INFO = Implementation("hub", "3")
ASKED = "2026-07-28"
DISCOVERED = {"supportedVersions": [ASKED], "capabilities": {"tools": {}}}
INITIALIZED = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


def verdict(outcome: Any, *, exchange: bool = True) -> EraDecision:
    return probe_verdict(outcome, asked=ASKED, exchange=exchange)


def http(status: int, fault: Fault = Fault.HTTP_STATUS) -> HttpError:
    return HttpError(fault, "x", status=status, may_have_run=False)


def lost(fault: Fault) -> TransportError:
    return TransportError(fault, "it went away", may_have_run=True)


def unsupported(data: Any) -> RpcError:
    return RpcError(-32022, "Unsupported protocol version", data, http_status=400)


@pytest.mark.parametrize("versions", [[ASKED], ["2099-01-01", ASKED], [ASKED, "2025-11-25", 7]])
def test_a_discovery_result_with_our_revision_is_modern(versions: list[Any]) -> None:
    assert verdict({"supportedVersions": versions}) == Modern(ASKED, {"supportedVersions": versions})


@pytest.mark.parametrize(
    "outcome",
    [
        {"tools": []},
        {"supportedVersions": "2026-07-28"},
        {"supportedVersions": ["2025-06-18"]},
        RpcError(-32601, "Method not found"),
        RpcError(-32602, "Invalid request parameters"),
        RpcError(-32600, "Missing session ID", http_status=400),
        RpcError(-32000, "Bad Request: Server not initialized", http_status=400),
        RpcError(-32001, "Session not found", http_status=404),
        RpcError(-32600, "broken", http_status=500),
        unsupported(None),
        unsupported({"supported": []}),
        unsupported({"supported": ["2025-03-26"]}),
        http(400),
        http(404),
        http(405),
        ProtocolError(Fault.NO_ANSWER, "empty"),
        ProtocolError(Fault.NOT_MCP, "html"),
    ],
)
def test_every_other_answer_whatever_its_code_means_legacy(outcome: Any) -> None:
    assert isinstance(verdict(outcome), Legacy)


@pytest.mark.parametrize(
    "outcome",
    [
        {"supportedVersions": ["2099-01-01"]},
        unsupported({"supported": ["2099-01-01"]}),
        RpcError(-32021, "needs sampling", {"requiredCapabilities": {"sampling": {}}}, http_status=400),
        http(401, Fault.UNAUTHORIZED),
        http(403, Fault.FORBIDDEN),
        http(429, Fault.RATE_LIMITED),
        http(302, Fault.REDIRECTED),
        http(500),
        http(503),
        lost(Fault.TIMEOUT),
        lost(Fault.CONNECTION_REFUSED),
        AddressRefused("private"),
    ],
)
def test_what_says_nothing_about_the_era_ends_the_opening(outcome: Any) -> None:
    assert isinstance(verdict(outcome), Fatal)


def test_a_server_that_names_our_revision_in_an_error_is_asked_again() -> None:
    assert isinstance(verdict(unsupported({"supported": [ASKED], "requested": "x"})), ProbeAgain)
    assert isinstance(verdict(RpcError(-32020, "Header mismatch", http_status=400)), ProbeAgain)


@pytest.mark.parametrize("fault", [Fault.PROCESS_EXITED, Fault.CONNECTION_LOST])
def test_a_child_that_dies_at_the_probe_is_legacy_and_needs_a_fresh_process(fault: Fault) -> None:
    found = verdict(lost(fault), exchange=False)
    assert isinstance(found, Legacy)
    assert (found.fresh, found.certain) == (True, True)


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_child_that_was_killed_says_nothing_worth_remembering(exit_code: int) -> None:
    killed = TransportError(Fault.PROCESS_EXITED, "killed", may_have_run=True, exit_code=exit_code)
    found = verdict(killed, exchange=False)
    assert isinstance(found, Legacy)
    assert not found.certain


def test_a_child_that_only_stays_silent_is_of_no_era_and_the_error_says_what_to_change() -> None:
    found = verdict(lost(Fault.TIMEOUT), exchange=False)
    assert isinstance(found, Fatal)
    assert "raise its connect timeout" in found.error.detail


def test_a_child_that_prints_rubbish_is_not_started_a_second_time() -> None:
    assert isinstance(verdict(lost(Fault.STDOUT_NOISE), exchange=False), Fatal)


def run(
    outcomes: list[Any], *, era: Any = "auto", exchange: bool = True, **link: Any
) -> tuple[list[Any], Opened | McpError]:
    """The actions of the opening and its end, given these outcomes of its requests in order."""
    declared = {"elicitation": {"form": {}, "url": {}}, "extensions": {"x": {}}}
    script = opening(era, INFO, declared, exchange=exchange, **link)
    asked: list[Any] = []
    answer: Any = None
    try:
        while True:
            action = script.send(answer)
            asked.append(action)
            answer = outcomes.pop(0) if isinstance(action, (Probe, Initialize, Change)) else None
    except StopIteration as stop:
        return asked, stop.value
    except McpError as error:
        return asked, error


def kinds(asked: list[Any]) -> list[type]:
    return [type(action) for action in asked]


def test_a_modern_server_is_open_after_the_probe_alone() -> None:
    result = {**DISCOVERED, "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "srv"}}, "instructions": "hi"}
    asked, opened = run([result])
    assert kinds(asked) == [Probe]
    assert isinstance(opened, Opened)
    assert (opened.revision.name, opened.server_info, opened.instructions) == (ASKED, {"name": "srv"}, "hi")


def test_a_legacy_server_is_initialized_on_the_same_connection_after_an_error() -> None:
    asked, opened = run([RpcError(-32601, "?"), INITIALIZED], exchange=False)
    assert kinds(asked) == [Probe, Initialize, Initialized]
    assert asked[1].params["protocolVersion"] == "2025-11-25"
    assert "extensions" not in asked[1].params["capabilities"]
    assert isinstance(opened, Opened)
    assert opened.revision.name == "2025-06-18"


def test_a_child_that_died_at_the_probe_gets_a_new_process_before_initialize() -> None:
    asked, opened = run([lost(Fault.PROCESS_EXITED), INITIALIZED], exchange=False)
    assert kinds(asked) == [Probe, Renew, Initialize, Initialized]
    assert isinstance(opened, Opened)


def test_initialize_follows_a_probe_without_an_answer_on_the_same_process_unless_the_setting_is_modern() -> None:
    asked, opened = run([Greeted(INITIALIZED)], exchange=False)
    assert kinds(asked) == [Probe, Initialized]
    assert asked[0].otherwise["protocolVersion"] == "2025-11-25"
    assert isinstance(opened, Opened)
    assert (opened.revision.name, opened.certain) == ("2025-06-18", False)
    asked, _ = run([DISCOVERED], era="modern", exchange=False)
    assert asked[0].otherwise is None
    asked, _ = run([DISCOVERED])
    assert asked[0].otherwise is None


@pytest.mark.parametrize("code", [-32022, -32602])
def test_a_legacy_revision_that_a_refused_initialize_names_is_used(code: int) -> None:
    refusal = RpcError(code, "Unsupported protocol version", {"supported": ["2025-03-26", "2024-11-05"]})
    asked, opened = run([RpcError(-32601, "?"), refusal, {**INITIALIZED, "protocolVersion": "2025-03-26"}])
    assert [action.params["protocolVersion"] for action in asked[1:3]] == ["2025-11-25", "2025-03-26"]
    assert isinstance(opened, Opened)
    assert opened.revision.name == "2025-03-26"


def test_a_server_that_refuses_the_modern_revision_that_it_names_is_opened_by_a_legacy_one_that_it_names() -> None:
    refusal = unsupported({"supported": [ASKED, "2025-06-18"]})
    asked, opened = run([refusal, refusal, INITIALIZED])
    assert kinds(asked) == [Probe, Probe, Initialize, Initialized]
    assert isinstance(opened, Opened)
    assert opened.revision.name == "2025-06-18"


def test_a_server_that_refused_a_probe_as_a_modern_one_is_never_sent_initialize_beside_the_next() -> None:
    asked, _ = run([unsupported({"supported": [ASKED]}), DISCOVERED], exchange=False)
    assert [action.otherwise is None for action in asked] == [False, True]


def test_the_setting_legacy_skips_the_probe() -> None:
    asked, _ = run([INITIALIZED], era="legacy")
    assert kinds(asked) == [Initialize, Initialized]


def test_the_setting_modern_refuses_a_legacy_answer_in_words() -> None:
    asked, error = run([RpcError(-32601, "?")], era="modern")
    assert kinds(asked) == [Probe]
    assert isinstance(error, IncompatibleVersion)
    assert "modern" in error.detail


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", None, 5, ["2025-11-25"]])
def test_an_initialize_result_of_no_revision_of_ours_is_incompatible(version: Any) -> None:
    _, error = run([RpcError(-32601, "?"), {**INITIALIZED, "protocolVersion": version}])
    assert isinstance(error, IncompatibleVersion)
    named = f"supports {version}" if isinstance(version, str) else "names no revision"
    assert error.detail.startswith(f"The server {named}; this client supports 2026-07-28, 2025-11-25")
    assert error.supported == ((version,) if isinstance(version, str) else ())


@pytest.mark.parametrize("status", [None, 400])
@pytest.mark.parametrize("code", [-32022, -32602])
def test_a_refused_initialize_that_names_no_revision_of_ours_is_incompatible(code: int, status: int | None) -> None:
    refusal = RpcError(
        code, "Unsupported", {"supported": ["2024-10-07"], "requested": "2025-11-25"}, http_status=status
    )
    asked, error = run([RpcError(-32601, "?"), refusal], fallback=SSE)
    assert kinds(asked) == [Probe, Initialize]
    assert isinstance(error, IncompatibleVersion)
    assert error.permanent
    assert error.supported == ("2024-10-07",)
    assert error.detail.startswith("The server supports 2024-10-07; this client supports 2026-07-28, 2025-11-25")


@pytest.mark.parametrize(
    "data", [None, {}, {"supported": []}, {"supported": "2024-10-07"}, {"supported": ["2025-11-25"]}]
)
def test_a_refused_initialize_that_proves_no_difference_stays_the_servers_error(data: Any) -> None:
    refusal = RpcError(-32602, "Invalid params", data)
    _, error = run([RpcError(-32601, "?"), refusal])
    assert error is refusal


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_legacy_revision_is_accepted(revision: str) -> None:
    _, opened = run([RpcError(-32601, "?"), {**INITIALIZED, "protocolVersion": revision}])
    assert isinstance(opened, Opened)
    assert opened.revision.name == revision


@pytest.mark.parametrize("refusal", [unsupported({"supported": [ASKED]}), RpcError(-32601, "?", http_status=404)])
def test_a_server_that_turned_modern_meanwhile_is_probed_once_more(refusal: RpcError) -> None:
    asked, opened = run([http(404), refusal, DISCOVERED])
    assert kinds(asked) == [Probe, Initialize, Probe]
    assert isinstance(opened, Opened)
    assert opened.revision.name == ASKED


def test_a_server_that_keeps_refusing_the_revision_it_names_is_asked_twice_only() -> None:
    asked, error = run([unsupported({"supported": [ASKED]})] * 3)
    assert kinds(asked) == [Probe, Probe]
    assert isinstance(error, RpcError)


def test_when_both_ways_fail_both_are_reported() -> None:
    _, error = run([lost(Fault.CONNECTION_LOST), lost(Fault.PROCESS_EXITED)], exchange=False)
    assert isinstance(error, TransportError)
    _, error = run([RpcError(-32600, "task group died", http_status=500), http(500)])
    assert isinstance(error, HttpError)
    assert "task group died" in error.detail


def test_what_a_revision_does_not_define_counts_as_undeclared() -> None:
    declared = {"elicitation": {"form": {}, "url": {}}, "roots": {}, "extensions": {"x": {}}}
    assert in_force(declared, REVISIONS["2024-11-05"]) == {"roots": {}}
    assert in_force(declared, REVISIONS["2025-06-18"]) == {"roots": {}, "elicitation": {"form": {}}}
    assert in_force(declared, REVISIONS["2025-11-25"]) == {"roots": {}, "elicitation": {"form": {}, "url": {}}}
    assert in_force(declared, REVISIONS["2026-07-28"]) == declared


def test_what_the_server_requires_and_is_not_offered_is_named() -> None:
    lacking = RpcError(-32021, "nope", {"requiredCapabilities": {"sampling": {}, "roots": {}}}, http_status=400)
    _, error = run([lacking])
    assert isinstance(error, RpcError)
    assert "sampling, roots" in error.detail


def test_a_feature_that_the_server_requires_and_is_not_offered_is_named() -> None:
    required = {"sampling": {"context": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}, "x": 1}
    _, error = run([RpcError(-32021, "nope", {"requiredCapabilities": required}, http_status=400)])
    assert isinstance(error, RpcError)
    assert "sampling.context, elicitation.form, elicitation.url, roots, x." in error.detail


# -- changing the transport

SSE = "http_sse"


@pytest.mark.parametrize("refusal", [http(400), http(404), http(405), RpcError(-32600, "no", http_status=400)])
def test_a_refused_initialize_leads_to_the_older_transport(refusal: McpError) -> None:
    asked, opened = run([http(405), refusal, None, INITIALIZED], fallback=SSE)
    assert kinds(asked) == [Probe, Initialize, Change, Initialize, Initialized]
    assert asked[2].kind == SSE
    assert isinstance(opened, Opened)


@pytest.mark.parametrize("refusal", [http(500), http(401), http(429), RpcError(-32600, "no"), lost(Fault.TIMEOUT)])
def test_every_other_failure_of_initialize_does_not(refusal: McpError) -> None:
    asked, error = run([http(405), refusal], fallback=SSE)
    assert kinds(asked) == [Probe, Initialize]
    assert error is refusal


def test_a_transport_that_was_chosen_is_not_changed() -> None:
    asked, error = run([http(405), http(405)])
    assert kinds(asked) == [Probe, Initialize]
    assert isinstance(error, HttpError)


@pytest.mark.parametrize(
    ("problem", "wins"),
    [
        (http(404), False),
        (lost(Fault.TIMEOUT), False),
        (http(401, Fault.UNAUTHORIZED), True),
        (ProtocolError(Fault.NO_ENDPOINT, "no endpoint"), True),
        (ProtocolError(Fault.ENDPOINT_REFUSED, "elsewhere"), True),
    ],
)
def test_of_two_failures_the_telling_one_is_raised_and_names_the_other(problem: McpError, wins: bool) -> None:
    refused, problem = http(405), problem.again(may_have_run=False)
    refused.detail, own = "POST was refused.", problem.detail
    _, error = run([http(405), refused, problem], fallback=SSE)
    assert error is (problem if wins else refused)
    assert isinstance(error, McpError)
    assert "POST was refused." in error.detail
    assert own in error.detail


def test_an_error_of_the_older_transport_leads_to_no_third_one() -> None:
    asked, error = run([http(405), http(405), None, unsupported({"supported": [ASKED]})], fallback=SSE)
    assert kinds(asked) == [Probe, Initialize, Change, Initialize]
    assert isinstance(error, RpcError)


def test_a_transport_of_the_legacy_era_is_never_probed() -> None:
    asked, opened = run([INITIALIZED], exchange=False, legacy_only=True)
    assert kinds(asked) == [Initialize, Initialized]
    assert isinstance(opened, Opened)
    asked, error = run([], era="modern", exchange=False, legacy_only=True)
    assert (asked, type(error)) == ([], IncompatibleVersion)


def test_a_remembered_legacy_server_is_not_probed_and_a_remembered_modern_one_is() -> None:
    asked, _ = run([INITIALIZED], remembered=Era.LEGACY)
    assert kinds(asked) == [Initialize, Initialized]
    asked, _ = run([DISCOVERED], remembered=Era.MODERN)
    assert kinds(asked) == [Probe]
    asked, _ = run([DISCOVERED], remembered=Era.LEGACY, era="modern")
    assert kinds(asked) == [Probe]
