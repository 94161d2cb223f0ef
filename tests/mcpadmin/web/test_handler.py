"""A page is made as a whole in one thread, which keeps its database connection. No page takes and returns memory for its
frames at each of its calls, however deep it is.
"""

import asyncio
import resource
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from asgiref.testing import ApplicationCommunicator
from django.core.signals import request_finished
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse

from mcpadmin.web.handler import ASYNCHRONOUS, Handler
from tests.mcpadmin.web import pages
from tests.tools.url_routes import views

LOOPS, DEPTHS = 300, 250


def faults_in_a_loop_of_calls() -> int:
    """Pages of memory that were new to this thread. A chunk that was returned is new when it is taken again."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(LOOPS):
        abs_of(-1)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def abs_of(number: int) -> int:
    return abs(number)


def faults_at_depth(depth: int) -> int:
    return faults_in_a_loop_of_calls() if depth == 0 else faults_at_depth(depth - 1)


def page(request: HttpRequest, depth: int) -> HttpResponse:
    return HttpResponse(str(faults_at_depth(depth)))


def most_faults(view: Callable[..., HttpResponse]) -> int:
    return max(int(view(HttpRequest(), depth).content) for depth in range(DEPTHS))


def test_a_loop_of_calls_takes_no_memory_for_each_of_them_at_any_depth() -> None:
    assert most_faults(page) >= LOOPS, "this Python does not have the weakness: the handler can go"
    assert most_faults(Handler().make_view_atomic(page)) < LOOPS / 10


async def test_an_asynchronous_view_stays_one() -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    assert Handler().make_view_atomic(view) is view


# --- threads -------------------------------------------------------------------------------------------------------------
def requested(handler: Handler, path: str) -> ApplicationCommunicator:
    scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")], "query_string": b""}
    return ApplicationCommunicator(handler, scope)


async def begin(handler: Handler, path: str) -> ApplicationCommunicator:
    request = requested(handler, path)
    await request.send_input({"type": "http.request", "body": b""})
    return request


async def body(request: ApplicationCommunicator) -> str:
    start = await request.receive_output(20)
    assert start["status"] == 200, start
    return (await request.receive_output(20))["body"].decode()


async def page_at(handler: Handler, path: str) -> str:
    request = await begin(handler, path)
    text = await body(request)
    await request.wait(20)
    return text


@pytest.mark.urls(pages.__name__)
@pytest.mark.django_db(transaction=True)
async def test_the_next_page_of_a_thread_uses_its_database_connection() -> None:
    opened: list[Any] = []

    def note(**event: Any) -> None:
        opened.append(event["connection"])

    handler = Handler(threads=1)
    connection_created.connect(note)
    try:
        first, second = await page_at(handler, "/count"), await page_at(handler, "/count")
    finally:
        connection_created.disconnect(note)
    assert first == second
    assert first.startswith("page_0: ")
    assert len(opened) == 1


@pytest.mark.urls(pages.__name__)
async def test_a_page_finds_nothing_of_the_request_before_it() -> None:
    handler = Handler(threads=1)
    assert [await page_at(handler, "/remember") for _ in range(2)] == ["nothing", "nothing"]


@pytest.mark.urls(pages.__name__)
async def test_a_page_that_waits_does_not_delay_another_one() -> None:
    handler = Handler()
    assert await asyncio.gather(*(page_at(handler, "/meet") for _ in range(2))) == ["met", "met"]


@pytest.mark.urls(pages.__name__)
async def test_a_stream_ends_when_its_client_disconnects() -> None:
    finished = asyncio.Event()

    def note(**_: Any) -> None:
        loop.call_soon_threadsafe(finished.set)

    loop, handler = asyncio.get_running_loop(), Handler()
    request_finished.connect(note)
    try:
        request = await begin(handler, "/endless")
        assert await body(request) == "begun"
        assert not finished.is_set()
        await request.send_input({"type": "http.disconnect"})
        await request.wait(20)
        await asyncio.wait_for(finished.wait(), 20)
    finally:
        request_finished.disconnect(note)
    assert pages.stream_ended.is_set()


def test_the_handler_knows_where_the_asynchronous_views_are() -> None:
    paths = {path for path, view in views() if iscoroutinefunction(view)}
    assert paths
    assert {path for path in paths if not path.startswith(ASYNCHRONOUS)} == set()
