"""A server with only the kit behind it, and a signed-in browser."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client
from playwright.sync_api import Browser, Page

from tests.kit.peer import Peer
from tests.tools.browser import Complaints, watched_context


@pytest.fixture
def kit_urls(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.kit.urls"
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    # The live server uses plain http, so the cookies must not be Secure. Other tests keep the product's names.
    settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME = "kit_session", "kit_csrf"
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = False


@pytest.fixture
def open_page(
    kit_urls: None, transactional_db: None, live_server: Any, browser: Browser
) -> Iterator[Callable[..., tuple[Page, Complaints, Peer]]]:
    """`open_page(width=390, theme="dark", signed_in=True)` -> page, its complaints, the peer of its socket."""
    user = get_user_model().objects.create_user("operator", password="correct horse battery")
    user.user_permissions.add(Permission.objects.get(codename="view_auditevent"))
    with ExitStack() as stack:

        def make(width: int = 1440, theme: str = "light", signed_in: bool = True) -> tuple[Page, Complaints, Peer]:
            options = {
                "viewport": {"width": width, "height": 900},
                "color_scheme": theme,
                "timezone_id": "Europe/Berlin",
            }
            context, complaints = stack.enter_context(watched_context(browser, live_server.url, **options))
            if signed_in:
                context.add_cookies([_session_cookie(user, live_server.url)])
            page = context.new_page()
            return page, complaints, Peer(page)

        yield make


def _session_cookie(user: Any, url: str) -> Any:
    client = Client()
    client.force_login(user)
    name = django_settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": url}
