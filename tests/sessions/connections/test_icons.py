"""Which of a server's icons is chosen, and where pages show it."""

import asyncio
import socket
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils import timezone

from servers.definitions.versions import store_listing
from servers.enums import DefinitionKind
from servers.models import Icon
from sessions.connections import icons
from sessions.connections.icons import Fetched
from sessions.host.fetching import fetch
from sessions.models import McpSession
from tests.servers.conftest import person
from tests.sessions.host.make import make_hold, make_session

HTTPS = "https://x.example/"
INLINE = "data:image/png;base64,iVBORw0KGgo="


def icon(src: str, *sizes: str, **more: str) -> dict[str, Any]:
    return {"src": src, "sizes": list(sizes), **more}


@pytest.mark.parametrize(
    ("named", "taken"),
    [
        ([icon(f"{HTTPS}16", "16x16"), icon(f"{HTTPS}64", "64x64"), icon(f"{HTTPS}512", "512x512")], f"{HTTPS}64"),
        ([icon(f"{HTTPS}16", "16x16"), icon(f"{HTTPS}32", "32x32")], f"{HTTPS}32"),
        ([icon(f"{HTTPS}a.svg"), icon(f"{HTTPS}b", mimeType="image/svg+xml"), icon(INLINE)], INLINE),
        ([icon("data:image/svg+xml;base64,PHN2Zz4="), icon("http://x.example/a.png"), icon("javascript:alert(1)")], ""),
        ([icon("file:///etc/passwd"), {"src": 5}, None, "x", {}], ""),
        ([icon(HTTPS + "a" * 300_000)], ""),
        ("https://x.example/a.png", ""),
        (None, ""),
    ],
)
def test_the_smallest_that_is_large_enough_is_taken_and_nothing_but_https_and_pictures(named: Any, taken: str) -> None:
    assert icons.source(named) == taken


@pytest.mark.django_db
def test_the_icon_of_a_server_is_in_the_list_and_in_its_head(client: Client) -> None:
    session = make_session("shelf")
    McpSession.objects.update(server_info={"name": "s", "icons": [icon(f"{HTTPS}a.png")]})
    kept = Icon.objects.create(
        server=session.server,
        digest=icons.digest(f"{HTTPS}a.png"),
        data=b"x",
        mime="image/png",
        expires_at=timezone.now(),
    )
    client.force_login(person("carla", "view_server"))
    for path in ("/servers/", "/servers/shelf/tools/"):
        page = client.get(path).content.decode()
        assert f'src="/servers/shelf/icons/{kept.digest}/"' in page
        assert HTTPS not in page
    session = McpSession.objects.select_related("server", "identity").get()
    context = {"server": session.server, "mcp_session": session}
    assert kept.digest in render_to_string("servers/_session.html", context)


@pytest.mark.django_db
def test_the_icons_of_the_server_and_of_its_tools_are_wanted_up_to_a_bound() -> None:
    session = make_session("shelf")
    lease = make_hold(session)
    McpSession.objects.update(server_info={"name": "s", "icons": [icon(f"{HTTPS}server.png")]})
    names = [f"{number:03}" for number in range(icons.MOST + 5)]
    tools = [{"name": name, "inputSchema": {}, "icons": [icon(f"{HTTPS}{name}.png")]} for name in names]
    store_listing(session.server, DefinitionKind.TOOL, tools, timezone.now(), session.identity)
    wanted = icons.due(lease)
    assert wanted[:2] == [f"{HTTPS}server.png", f"{HTTPS}000.png"]
    assert len(wanted) == icons.MOST


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x1cftypheic", ""),
        (b"RIFF\x10\0\0\0WAVEfmt ", ""),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", ""),
        (b"<html>", ""),
        (b"BM\x10\0", ""),
        (b"", ""),
    ],
)
def test_only_what_begins_as_a_picture_is_kept_as_one(data: bytes, mime: str) -> None:
    session = make_session("shelf")
    icons.store(make_hold(session), {f"{HTTPS}a.png": Fetched(data)})
    kept = Icon.objects.get()
    assert (kept.mime, bytes(kept.data or b"")) == (mime, data if mime else b"")
    assert bool(kept.problem) is not bool(mime)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "10.255.255.1", "192.168.255.1", "[fd00::1]"]
)
def test_no_icon_is_fetched_from_a_private_address(host: str, settings: Any) -> None:
    settings.ALLOW_LOOPBACK, settings.ALLOWED_NETWORKS, settings.OUTBOUND_PROXY = False, [], ""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        fetched = asyncio.run(fetch(f"https://{host}:{listening.getsockname()[1]}/icon.png", "image/png", 1_000))
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert fetched.data == b""
    assert "guard does not allow" in fetched.problem
