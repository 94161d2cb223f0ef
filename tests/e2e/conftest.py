"""Stacks and people in browsers, for tests that need more than one."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.e2e.sockets import Visitor
from tests.e2e.walk import Walk
from tests.tools.browser import watched_context
from tests.tools.stack import ADMIN, Stack, started_stack


@pytest.fixture
def fresh_stack(make_stack: Callable[..., Stack]) -> Stack:
    """A new product: no user, no server."""
    stack: Stack = make_stack().start()
    return stack


@pytest.fixture(scope="module")
def own_stack() -> Iterator[Stack]:
    """A product of this file alone, with its first administrator (ADMIN) and no server at first."""
    with started_stack(administrator=True) as stack:
        yield stack


def cookies_of_a_sign_in(stack: Stack, account: tuple[str, str] = ADMIN) -> list[Any]:
    """A new sign-in, without the time that a browser takes to show two pages."""
    visitor = Visitor(stack, account)
    visitor.close()
    return [
        {"name": name, "value": value, "url": stack.base_url, "httpOnly": "session" in name, "sameSite": "Lax"}
        for name, value in visitor.cookies.items()
    ]


@cache
def cookies_of(stack: Stack, account: tuple[str, str]) -> list[Any]:
    """One sign-in shared by all tests that only need a signed-in user. A test that signs out creates its own."""
    return cookies_of_a_sign_in(stack, account)


@pytest.fixture
def walker(browser: Browser) -> Iterator[Callable[..., Walk]]:
    """`walker(stack, signed_in=False, account=ADMIN)`: a person in a separate browser context, with an empty page. A
    page's complaint fails the test."""
    collected = []
    with ExitStack() as closing:

        def make(stack: Stack, *, signed_in: bool = False, account: tuple[str, str] = ADMIN, **options: object) -> Walk:
            window = {"viewport": {"width": 1440, "height": 900}} | options
            context, complaints = closing.enter_context(watched_context(browser, stack.base_url, **window))
            collected.append(complaints)
            walk = Walk(context.new_page(), stack.base_url, complaints)
            if signed_in:
                context.add_cookies(cookies_of(stack, account))
            return walk

        yield make
    assert [line for complaints in collected for line in complaints.unexpected()] == []
