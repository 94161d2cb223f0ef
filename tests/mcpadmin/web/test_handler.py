"""No page takes and returns memory for its frames at each of its calls, however deep it is."""

import resource
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from mcpadmin.web.handler import Handler

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
