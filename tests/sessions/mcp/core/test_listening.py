"""The decisions of subscriptions: what is requested, acknowledged and delivered."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.mcp.core import methods
from sessions.mcp.core.errors import Fault, HttpError, McpError, NotReady, RpcError, TooManyPending, TransportError
from sessions.mcp.core.events import Following, ListChanged, ListKind, ProtocolViolation, ResourceUpdated
from sessions.mcp.core.jsonrpc import Notification
from sessions.mcp.core.listening import (
    SUBSCRIPTION_ID,
    Filter,
    Listen,
    Listens,
    granted,
    listen_params,
    normal_form,
    nothing,
    requestable,
    stream_end,
)
from sessions.mcp.core.tasks import EXTENSION

pytestmark = pytest.mark.unit

ALL = Filter(frozenset({"a://1", "b://2"}), frozenset(ListKind), frozenset({"t1"}))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def notice(method: str, identity: Any = None, **params: Any) -> Notification:
    meta = {} if identity is None else {"_meta": {SUBSCRIPTION_ID: identity}}
    return Notification(method, {**params, **meta})


def test_the_parameters_name_each_wish_once_and_in_order() -> None:
    assert listen_params(ALL) == {
        "notifications": {
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "toolsListChanged": True,
            "resourceSubscriptions": ["a://1", "b://2"],
            "taskIds": ["t1"],
        }
    }


def test_a_wish_that_is_not_there_is_not_written() -> None:
    assert listen_params(Filter(lists=frozenset({ListKind.PROMPTS}))) == {"notifications": {"promptsListChanged": True}}


def test_what_the_acknowledgement_leaves_out_is_refused_by_name() -> None:
    honoured = granted(ALL, {"toolsListChanged": True, "resourceSubscriptions": ["a://1"]}, {"x": "why"})
    assert (honoured.resources, honoured.lists, honoured.tasks) == ({"a://1"}, {ListKind.TOOLS}, set())
    assert honoured.refused.keys() == {"x", "b://2", "t1", "resources", "resource_templates", "prompts"}
    assert honoured.refused["x"] == "why"


SPELLINGS = {
    "file:///tmp/a b": "file:///tmp/a%20b",
    "note://größe": "note://gr%c3%b6%C3%9Fe",
    "NOTE://A/B": "note://A/B",
    "HTTPS://Example.COM/A?b=C": "https://example.com/A?b=C",
    "note:a|b": "note:a%7Cb",
}


@pytest.mark.parametrize(("wanted", "named"), SPELLINGS.items())
def test_a_uri_that_a_server_has_parsed_is_the_same(wanted: str, named: str) -> None:
    asked = Filter(frozenset({wanted, "note://other"}), tasks=frozenset({wanted}))
    honoured = granted(asked, {"resourceSubscriptions": [named], "taskIds": [named]}, {})
    assert (honoured.resources, honoured.tasks) == ({wanted}, set())


@pytest.mark.parametrize(("one", "other"), [("note://A", "note://a"), ("a://x/B", "a://x/b"), ("a:b", "a:c")])
def test_other_uris_stay_others(one: str, other: str) -> None:
    assert normal_form(one) != normal_form(other)


def test_a_uri_that_came_back_with_a_slash_more_is_the_same() -> None:
    requested = Filter(frozenset({"http://host"}))
    assert granted(requested, {"resourceSubscriptions": ["http://host/"]}, {}).resources == {"http://host"}


@given(ANYTHING)
def test_whatever_is_acknowledged_nothing_is_honoured_that_was_not_wanted(subset: Any) -> None:
    honoured = granted(ALL, subset, {})
    assert honoured.resources <= ALL.resources
    assert honoured.lists <= ALL.lists
    assert honoured.tasks <= ALL.tasks
    named = honoured.resources | honoured.lists | honoured.tasks
    assert named | honoured.refused.keys() == ALL.resources | ALL.lists | ALL.tasks


def test_a_declared_capability_is_asked_for_and_no_other() -> None:
    declared = {"tools": {"listChanged": True}, "resources": {"subscribe": False, "listChanged": True}, "prompts": {}}
    asked, refused = requestable(ALL, declared, tasks=True)
    assert asked == Filter(lists=frozenset({ListKind.TOOLS, ListKind.RESOURCES, ListKind.RESOURCE_TEMPLATES}))
    assert refused.keys() == {"a://1", "b://2", "t1", "prompts"}


@pytest.mark.parametrize("ours", [True, False])
def test_tasks_are_followed_only_where_both_sides_know_the_extension(*, ours: bool) -> None:
    asked, refused = requestable(Filter(tasks=frozenset({"t1"})), {"extensions": {EXTENSION: {}}}, tasks=ours)
    assert (asked.tasks == {"t1"}) is ours
    assert ("t1" in refused) is not ours


def test_a_refused_request_refuses_everything_in_the_servers_words() -> None:
    honoured = nothing(ALL, "no such method", {"x": "why"})
    assert not honoured.resources | honoured.lists | honoured.tasks
    assert honoured.refused["a://1"] == honoured.refused["t1"] == "no such method"


@pytest.mark.parametrize(
    ("error", "refused", "again"),
    [
        (None, False, True),
        (RpcError(-32601, "no"), True, False),
        (RpcError(-32602, "no"), True, False),
        (RpcError(-32021, "no"), True, False),
        (RpcError(-32603, "full"), True, True),
        (HttpError(Fault.HTTP_STATUS, "gone", status=404, may_have_run=False), True, False),
        (HttpError(Fault.HTTP_STATUS, "busy", status=503, may_have_run=True), False, True),
        (HttpError(Fault.UNAUTHORIZED, "who", status=401, may_have_run=False), False, False),
        (TransportError(Fault.CONNECTION_LOST, "cut", may_have_run=True), False, True),
        (NotReady("closed"), False, False),
        (TooManyPending("full"), False, True),
    ],
)
def test_how_a_listen_request_ended_says_whether_to_ask_again(
    error: McpError | None, *, refused: bool, again: bool
) -> None:
    end = stream_end(error)
    assert (end.refused, end.again) == (refused, again)
    assert end.reason


def test_the_wait_that_a_server_asks_for_is_kept() -> None:
    busy = HttpError(Fault.RATE_LIMITED, "busy", status=429, may_have_run=False, retry_after=7.0)
    assert stream_end(busy).retry_after == 7.0


def listens(*identities: str) -> Listens:
    made = Listens()
    for identity in identities:
        made.add(identity, Listen(ALL, {}))
    return made


def test_an_acknowledgement_is_for_the_request_that_it_names() -> None:
    two = listens("listen-1", "listen-2")
    (event,) = two.events_of(notice(methods.ACKNOWLEDGED, "listen-2", notifications={"taskIds": ["t1"]}))
    assert isinstance(event, Following)
    assert (event.subscription, event.honoured.tasks) == ("listen-2", {"t1"})


def test_an_acknowledgement_without_a_name_is_for_the_only_one_that_waits() -> None:
    two = listens("listen-1", "listen-2")
    (event,) = two.events_of(notice(methods.ACKNOWLEDGED, notifications={}))
    assert isinstance(event, ProtocolViolation)
    [*two.events_of(notice(methods.ACKNOWLEDGED, "listen-1", notifications={}))]
    (event,) = two.events_of(notice(methods.ACKNOWLEDGED, notifications={}))
    assert isinstance(event, Following)
    assert event.subscription == "listen-2"


def test_a_notification_is_taken_without_an_id_and_dropped_with_a_foreign_one() -> None:
    one = listens("listen-1")
    changed = "notifications/tools/list_changed"
    assert [*one.events_of(notice(changed))] == [ListChanged(ListKind.TOOLS)]
    assert [*one.events_of(notice(changed, "listen-1"))] == [ListChanged(ListKind.TOOLS)]
    one.remove("listen-1")
    assert [*one.events_of(notice(changed, "listen-1"))] == []
    assert one.foreign == 1


@given(st.text(max_size=30), ANYTHING, ANYTHING)
def test_no_notification_breaks_it(method: str, identity: Any, uri: Any) -> None:
    one = listens("listen-1")
    for name in (method, methods.ACKNOWLEDGED, methods.CANCELLED, methods.RESOURCE_UPDATED):
        message = Notification(name, {"_meta": {SUBSCRIPTION_ID: identity}, "uri": uri, "requestId": identity})
        assert all(not isinstance(event, ResourceUpdated) or isinstance(uri, str) for event in one.events_of(message))
        assert one.ended_by(message) in (None, "listen-1")
