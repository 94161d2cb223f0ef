"""Only our own and trusted origins may open a websocket. tests/sessions/live tests the handshake itself."""

from typing import Any

import pytest

from mcpadmin.origin import allowed


def scope(origin: str | None, host: str = "mcp.example.org", **more: str) -> dict[str, Any]:
    headers = [(b"host", host.encode())] + [
        (name.replace("_", "-").encode(), value.encode()) for name, value in more.items()
    ]
    return {"type": "websocket", "headers": headers if origin is None else [*headers, (b"origin", origin.encode())]}


@pytest.fixture(autouse=True)
def site(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["mcp.example.org"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://front.example.org", "https://*.trusted.example"]
    settings.SECURE_PROXY_SSL_HEADER = None


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://mcp.example.org", "mcp.example.org"),
        ("http://mcp.example.org", "mcp.example.org:80"),
        ("http://mcp.example.org:8000", "mcp.example.org:8000"),
        ("https://front.example.org", "mcp.example.org"),
        ("https://a.trusted.example", "mcp.example.org"),
    ],
)
def test_our_own_and_trusted_origins_pass(origin: str, host: str) -> None:
    assert allowed(scope(origin, host))


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "mcp.example.org"),
        ("", "mcp.example.org"),
        ("null", "mcp.example.org"),
        ("https://mcp.example.org", "mcp.example.org"),
        ("http://mcp.example.org:8000", "mcp.example.org"),
        ("http://mcp.example.org.evil.example", "mcp.example.org"),
        ("http://evil.example", "evil.example"),
        ("http://user@mcp.example.org", "mcp.example.org"),
        ("http://mcp.example.org/", "mcp.example.org"),
        ("http://[", "mcp.example.org"),
        ("http://front.example.org", "mcp.example.org"),
        ("https://trusted.example.evil.org", "mcp.example.org"),
        ("http://" + "a" * 600, "mcp.example.org"),
    ],
)
def test_every_other_origin_is_refused(origin: str | None, host: str) -> None:
    assert not allowed(scope(origin, host))


def test_two_origins_are_none() -> None:
    twice = scope("http://mcp.example.org")
    twice["headers"].append((b"origin", b"http://mcp.example.org"))
    assert not allowed(twice)


def test_a_proxys_word_on_the_scheme_counts_only_where_the_settings_say_so(settings: Any) -> None:
    behind = scope("https://mcp.example.org", x_forwarded_proto="https")
    assert not allowed(behind)
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert allowed(behind)
    assert not allowed(scope("http://mcp.example.org", x_forwarded_proto="https"))
