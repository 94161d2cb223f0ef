"""Lists, floods and deadlines are bounded, and the core imports neither asyncio nor Django."""

import subprocess
import sys

import pytest

from sessions.mcp.core.correlation import Correlation, Deadline
from sessions.mcp.core.errors import Fault, McpError, ProtocolError, RpcError, TransportError
from sessions.mcp.core.events import ListKind
from sessions.mcp.core.flow import TokenBucket
from sessions.mcp.core.limits import Limits
from sessions.mcp.core.pagination import Pages


def tool(name: object) -> dict[str, object]:
    return {"name": name, "inputSchema": {}}


def pages(**limits: int) -> Pages:
    return Pages(ListKind.TOOLS, Limits(**limits))


def test_pages_are_joined_until_no_cursor_follows() -> None:
    reading = pages()
    reading.add({"tools": [tool("a")], "nextCursor": "2"})
    assert reading.params == {"cursor": "2"}
    reading.add({"tools": [tool("b")]})
    assert reading.done
    assert [item["name"] for item in reading.listing().items] == ["a", "b"]
    assert not reading.listing().truncated


def test_an_empty_cursor_is_followed_once_and_then_ends_without_loss() -> None:
    reading = pages()
    reading.add({"tools": [tool("a")], "nextCursor": ""})
    assert reading.params == {"cursor": ""}
    reading.add({"tools": [tool("b")], "nextCursor": ""})
    assert reading.done
    assert not reading.listing().truncated


@pytest.mark.parametrize("cursor", ["", "2"])
def test_a_list_that_begins_again_after_an_empty_cursor_has_one_warning(cursor: str) -> None:
    """Servers that take an empty cursor for none."""
    first = {"tools": [tool(f"t{number}") for number in range(60)], "nextCursor": cursor}
    reading = pages()
    reading.add(first)
    if cursor:
        reading.add({"tools": [tool("last")], "nextCursor": ""})
    reading.add(first)
    assert (reading.done, reading.truncated) == (True, False)
    assert reading.listing().warnings == ["The server ends its list with an empty cursor."]
    assert len(reading.listing().items) == (61 if cursor else 60)


@pytest.mark.parametrize(("asked", "code", "ended"), [("", -32602, True), ("2", -32602, False), ("", -32603, False)])
def test_a_server_that_refuses_its_own_empty_cursor_has_listed_everything(asked: str, code: int, ended: bool) -> None:
    reading = pages()
    reading.add({"tools": [tool("a")], "nextCursor": asked})
    assert (reading.ended_by(code), reading.done, reading.truncated) == (ended, ended, False)


def test_a_cursor_that_comes_again_stops_the_reading() -> None:
    reading = pages()
    for _ in range(2):
        reading.add({"tools": [], "nextCursor": "next"})
    assert reading.done
    assert reading.listing().truncated
    assert reading.listing().warnings == ["The server repeats a cursor."]
    assert reading.listing().limited_by is Fault.CURSOR_REPEATED


def test_pages_and_items_are_bounded_and_the_cut_is_reported() -> None:
    many_pages = pages(list_pages=3)
    for number in range(3):
        many_pages.add({"tools": [tool(f"t{number}")], "nextCursor": str(number)})
    assert many_pages.done
    assert many_pages.listing().truncated
    assert many_pages.listing().limited_by is Fault.PAGE_LIMIT
    many_items = pages(list_items=2)
    many_items.add({"tools": [tool("a"), tool("b"), tool("c")], "nextCursor": "x"})
    assert many_items.done
    assert many_items.listing().truncated
    assert len(many_items.listing().items) == 2
    assert many_items.listing().limited_by is Fault.LIST_LIMIT


def test_the_bytes_of_a_list_are_bounded_over_its_pages_and_its_cursors() -> None:
    descriptions = pages(list_bytes=1000)
    for number in range(3):
        descriptions.add({"tools": [tool(f"t{number}") | {"description": "x" * 400}], "nextCursor": str(number)})
    assert (descriptions.done, descriptions.limited_by) == (True, Fault.LIST_LIMIT)
    assert len(descriptions.listing().items) == 2
    cursors = pages(list_bytes=1000)
    cursors.add({"tools": [tool("a")], "nextCursor": "x" * 2000})
    assert (cursors.done, cursors.limited_by) == (True, Fault.LIST_LIMIT)


def test_doubles_and_entries_without_a_name_are_left_out_with_a_word() -> None:
    reading = pages()
    first = tool("a") | {"title": "first"}
    reading.add({"tools": [first, tool("a"), tool(None), "text", 7]})
    assert reading.listing().items == [first]
    assert len(reading.listing().warnings) == 4


@pytest.mark.parametrize("result", [{}, {"tools": {}}, {"tools": None}, {"resources": []}])
def test_a_page_without_a_list_is_an_invalid_result(result: dict[str, object]) -> None:
    with pytest.raises(ProtocolError) as caught:
        pages().add(result)
    assert caught.value.fault is Fault.INVALID_RESULT


def test_a_definition_is_kept_as_the_server_wrote_it() -> None:
    definition = {"name": "a", "inputSchema": {"$defs": {"x": {"$anchor": "y"}}, "zzz": 1, "if": {}}, "unknown": [1]}
    reading = pages()
    reading.add({"tools": [definition]})
    assert reading.listing().items[0] is definition


def test_a_flood_is_cut_to_its_rate_and_counted() -> None:
    bucket = TokenBucket(rate=10, burst=5)
    assert [bucket.allow(0.0) for _ in range(8)] == [True] * 5 + [False] * 3
    assert bucket.take_dropped() == 3
    assert bucket.allow(0.1)
    assert not bucket.allow(0.1)


def test_a_flood_is_over_soon_after_its_last_event() -> None:
    bucket = TokenBucket(rate=100, burst=100)
    assert not bucket.dropping(0.0)
    for _ in range(101):
        bucket.allow(1.0)
    assert bucket.dropping(1.0)
    assert not bucket.dropping(1.1)


def test_progress_renews_the_idle_time_and_never_the_total() -> None:
    deadline = Deadline.starting(100.0, idle=10.0, total=25.0)
    assert deadline.expires_at == 110.0
    assert deadline.extend(108.0) == 118.0
    assert deadline.extend(117.0) == 125.0
    assert deadline.extend(124.0) == 125.0


def test_memory_of_requests_given_up_is_bounded() -> None:
    requests = Correlation(max_pending=10_000, max_tombstones=3)
    given_up = [requests.add("ping", None, wants_progress=False) for _ in range(5)]
    for pending in given_up:
        requests.give_up(pending)
    assert [requests.take_tombstone(pending.id) is not None for pending in given_up] == [False, False, True, True, True]


def test_why_a_list_is_cut_is_told_whatever_else_is_wrong_with_it() -> None:
    reading = pages()
    page = {"tools": [tool(f"t{number}") for number in range(60)], "nextCursor": "2"}
    reading.add(page)
    reading.add(page)
    listing = reading.listing()
    assert (listing.limited_by, listing.cut_because) == (Fault.CURSOR_REPEATED, "The server repeats a cursor.")


def test_an_entry_whose_name_no_database_could_index_is_left_out() -> None:
    reading = pages()
    reading.add({"tools": [tool("é" * 1_025), tool("é" * 1_024)]})
    listing = reading.listing()
    assert [len(item["name"]) for item in listing.items] == [1_024]
    assert "more than 2,048 bytes" in listing.warnings[0]


def test_an_error_repeated_for_another_request_keeps_everything_but_the_doubt() -> None:
    error = TransportError(Fault.PROCESS_EXITED, "gone", may_have_run=True, exit_code=3, stderr_tail="why")
    again = error.again(may_have_run=False)
    assert again is not error
    assert (again.fault, again.detail, again.exit_code, again.stderr_tail) == ("process_exited", "gone", 3, "why")
    assert (error.may_have_run, again.may_have_run) == (True, False)


def test_every_error_says_its_fault_and_its_detail() -> None:
    error: McpError = RpcError(-32602, "Unknown tool", {"a": 1})
    assert str(error) == "rpc_error: -32602 Unknown tool"
    assert error.detail == "Unknown tool"


FORBIDDEN = ("django", "celery", "channels", "httpx", "aiohttp", "asyncio", "socket", "threading")
FORBIDDEN_TO_CLIENT = ("django", "celery", "channels", "servers")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_core_loads_nothing_that_waits() -> None:
    modules = (
        "capabilities correlation errors events flow headers jsonrpc limits methods negotiation opening pagination "
        "results session state versions"
    )
    statement = "; ".join(f"import sessions.mcp.core.{name}" for name in modules.split())
    assert loaded_after(statement).isdisjoint(FORBIDDEN)


def test_the_client_runs_without_django() -> None:
    assert loaded_after("import sessions.mcp.client, sessions.mcp.transports.registry").isdisjoint(FORBIDDEN_TO_CLIENT)
