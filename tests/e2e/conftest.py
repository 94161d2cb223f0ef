"""Stacks and people in browsers, for tests that need more than one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.e2e.sockets import Visitor
from tests.e2e.walk import Walk
from tests.tools.browser import watched_context
from tests.tools.stack import Stack


@pytest.fixture
def fresh_stack(make_stack: Callable[..., Stack]) -> Stack:
    """A new product: no user, no server."""
    stack: Stack = make_stack().start()
    return stack


@pytest.fixture
def own_stack(make_stack: Callable[..., Stack]) -> Stack:
    """A product with its first administrator (ADMIN) and no server."""
    stack: Stack = make_stack(administrator=True).start()
    return stack


def cookies_of_a_sign_in(stack: Stack) -> list[Any]:
    """A new sign-in of the administrator, without the time that a browser takes to show two pages."""
    visitor = Visitor(stack)
    visitor.close()
    return [
        {"name": name, "value": value, "url": stack.base_url, "httpOnly": "session" in name, "sameSite": "Lax"}
        for name, value in visitor.cookies.items()
    ]


@pytest.fixture
def walker(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[..., Walk]]:
    """`walker(stack, signed_in=False)`: a person in a separate browser context, with an empty page. A page's complaint
    fails the test."""
    collected = []
    with ExitStack() as closing:

        def make(stack: Stack, *, signed_in: bool = False, **options: object) -> Walk:
            window = {"viewport": {"width": 1440, "height": 900}} | options
            context, complaints = closing.enter_context(watched_context(browser, stack.base_url, **window))
            collected.append(complaints)
            walk = Walk(context.new_page(), stack.base_url, complaints)
            if signed_in:
                context.add_cookies(cookies_of_a_sign_in(stack))
            return walk

        yield make
    assert [line for complaints in collected for line in complaints.unexpected()] == []
