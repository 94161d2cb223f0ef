"""A client with the OAuth client of an official SDK: signs in at an endpoint for agents, calls one tool, refreshes its
tokens, calls again, and prints what it got as JSON.

The person at the browser is played here too: signs in with a password, reads the page of consent, and presses *Allow*.
Runs in the environments of the peers: python oauth_program.py sdk1|sdk2 URL USER PASSWORD.
"""
# ruff: noqa: PLC0415  # each environment has the packages of its own SDK only

import asyncio
import importlib
import json
import re
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

FACE, URL, USER, PASSWORD = sys.argv[1:5]
httpx: Any = importlib.import_module("httpx" if FACE == "sdk1" else "httpx2")
BACK = "http://127.0.0.1:33418/callback"
returned: dict[str, str] = {}
consents: list[str] = []


class Storage:
    """In memory."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def csrf(page: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found, page[-3_000:]
    return found.group(1)


async def allow(url: str) -> None:
    """What a browser does until it is sent back to the client."""
    parts = urlsplit(url)
    async with httpx.AsyncClient(base_url=f"{parts.scheme}://{parts.netloc}", timeout=60) as browser:
        asked = await browser.get(url, follow_redirects=True)
        login = {"login": USER, "password": PASSWORD, "csrfmiddlewaretoken": csrf(asked.text)}
        page = await browser.post(
            str(asked.url), data=login, headers={"Referer": str(asked.url)}, follow_redirects=True
        )
        assert page.status_code == 200, page.text[-3_000:]
        consents.append(re.sub(r"<[^>]+>", " ", page.text))
        scopes = re.findall(r'name="scopes"[^>]*value="([^"]+)"', re.sub(r"\s+", " ", page.text))
        form = {"scopes": scopes, "days": "7", "csrfmiddlewaretoken": csrf(page.text)}
        back = await browser.post(str(page.url), data=form, headers={"Referer": str(page.url)})
        assert back.status_code == 302, back.text[-3_000:]
        location = back.headers["location"]
        assert location.startswith(BACK), location
        returned.update({name: values[0] for name, values in parse_qs(urlsplit(location).query).items()})


async def back() -> Any:
    if FACE == "sdk1":
        return returned["code"], returned["state"]
    from mcp.shared.auth import AuthorizationCodeResult

    return AuthorizationCodeResult(code=returned["code"], state=returned["state"], iss=returned["iss"])


def provider(storage: Storage) -> Any:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": f"Client with {FACE}",
            "redirect_uris": [BACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    return OAuthClientProvider(URL, metadata, storage, allow, back)


async def call(auth: Any) -> str:
    text: str
    if FACE == "sdk1":
        from mcp import ClientSession
        from mcp.client.streamable_http import streamable_http_client

        async with (
            httpx.AsyncClient(auth=auth, timeout=60, follow_redirects=True) as http,
            streamable_http_client(URL, http_client=http) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            text = (await session.call_tool("echo", {"text": "signed in"})).content[0].text
            return text
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx.AsyncClient(auth=auth, timeout=60, follow_redirects=True) as http,
        Client(streamable_http_client(URL, http_client=http), mode="auto") as client,
    ):
        text = (await client.call_tool("echo", {"text": "signed in"})).content[0].text
        return text


async def main() -> None:
    storage = Storage()
    auth = provider(storage)
    first = await call(auth)
    old = storage.tokens.access_token
    auth.context.token_expiry_time = 1.0  # long ago: the client refreshes before its next request
    second = await call(auth)
    found = {
        "texts": [first, second],
        "refreshed": storage.tokens.access_token != old,
        "consents": consents,
        "token": storage.tokens.access_token,
        "scope": storage.tokens.scope,
    }
    print("FOUND", json.dumps(found))


asyncio.run(main())
