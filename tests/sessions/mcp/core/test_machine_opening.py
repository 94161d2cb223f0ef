"""Any sequence of outcomes ends the opening, and any sequence of pages ends a list."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.mcp.core.capabilities import Implementation
from sessions.mcp.core.errors import Fault, HttpError, McpError, NotReady, ProtocolError, RpcError, TransportError
from sessions.mcp.core.events import ListKind
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.opening import Change, Greeted, Initialize, Initialized, Opened, Probe, Renew, opening
from sessions.mcp.core.pagination import Pages
from sessions.mcp.core.versions import REVISIONS, Era
from tests.tools.examples import examples

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=6)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
revisions = st.lists(st.sampled_from([*REVISIONS, "2099-01-01"]) | values, max_size=4)
results = st.fixed_dictionaries(
    {},
    optional={
        "supportedVersions": revisions | values,
        "protocolVersion": st.sampled_from([*REVISIONS]) | values,
        "capabilities": values,
        "serverInfo": values,
        "instructions": values,
        "_meta": values,
    },
)
statuses = st.sampled_from([200, 301, 400, 401, 403, 404, 405, 406, 429, 500, 503])
errors = st.one_of(
    st.builds(
        lambda code, data, status: RpcError(code, "m", data, http_status=status),
        st.sampled_from([-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32020, -32021, -32022, 0]),
        values | st.fixed_dictionaries({"supported": revisions | values}),
        st.none() | statuses,
    ),
    st.builds(lambda status: HttpError(Fault.HTTP_STATUS, "x", status=status, may_have_run=False), statuses),
    st.builds(lambda fault: ProtocolError(fault, "x"), st.sampled_from(Fault)),
    st.builds(lambda fault: TransportError(fault, "x", may_have_run=True), st.sampled_from(Fault)),
    st.builds(lambda: NotReady("closed")),
)

#: actions of the longest opening: two probes, a new connection, initialize, and all of that again when the era changes
LONGEST = 12


@settings(max_examples=examples(250))
@given(
    outcomes=st.lists(results | errors, min_size=LONGEST, max_size=LONGEST),
    era=st.sampled_from(["auto", "legacy", "modern"]),
    exchange=st.booleans(),
    legacy_only=st.booleans(),
    fallback=st.sampled_from(["", "http_sse"]),
    remembered=st.sampled_from([None, *Era]),
)
def test_any_sequence_of_outcomes_ends_with_an_open_session_or_an_error(outcomes: list[Any], **more: Any) -> None:
    script = opening(more.pop("era"), Implementation("test", "1"), {"roots": {}}, **more)
    sent, actions = None, 0
    try:
        while True:
            action = script.send(sent)
            actions += 1
            assert actions <= LONGEST, "the opening does not end"
            sent = _came_of(action, outcomes.pop(0))
    except McpError:
        return
    except StopIteration as stop:
        opened = stop.value
    assert isinstance(opened, Opened)
    assert opened.revision.name in REVISIONS
    assert isinstance(opened.server_capabilities, dict)
    assert isinstance(opened.server_info, dict)
    assert isinstance(opened.instructions, str)


def _came_of(action: Any, outcome: Any) -> Any:
    """What the driver (client/opener.py) would send back."""
    if isinstance(action, Probe) and action.otherwise is not None and isinstance(outcome, dict) and "_meta" in outcome:
        return Greeted(outcome)
    if isinstance(action, (Probe, Initialize)):
        return outcome
    assert isinstance(action, (Renew, Change, Initialized))
    return outcome if isinstance(action, Change) and isinstance(outcome, McpError) else None


SMALL = Limits(list_items=5, list_pages=4, list_bytes=2_000)
entries = values | st.fixed_dictionaries({"name": st.text(max_size=2) | values}, optional={"description": values})
pages = st.fixed_dictionaries(
    {}, optional={"tools": st.lists(entries, max_size=4) | values, "nextCursor": st.text(max_size=2) | values}
)


@settings(max_examples=examples(150))
@given(st.lists(pages, min_size=5, max_size=5))
def test_any_sequence_of_pages_ends_within_the_limits(results: list[dict[str, Any]]) -> None:
    reading = Pages(ListKind.TOOLS, SMALL)
    asked, cursors = 0, []
    while not reading.done:
        cursors.append((reading.params or {}).get("cursor"))
        if not isinstance(results[asked].get("tools"), list):
            with pytest.raises(ProtocolError):
                reading.add(results[asked])
            return
        reading.add(results[asked])
        asked += 1
    listing = reading.listing()
    assert asked <= SMALL.list_pages
    assert len(set(cursors)) == len(cursors), "one cursor was asked for twice"
    assert len(listing.items) <= SMALL.list_items
    names = [item["name"] for item in listing.items]
    assert len(set(names)) == len(names)
    assert listing.limited_by is None or listing.truncated
