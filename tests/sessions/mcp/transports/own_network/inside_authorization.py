"""Addresses in the documents of an untrusted authorization server reach nothing internal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, Grant, IdentityProvider
from sessions.mcp.core.errors import AddressRefused, AuthorizationError, McpError
from sessions.mcp.oauth.challenges import Demand
from sessions.mcp.transports.authorization_http import AuthorizationHttp
from sessions.mcp.transports.egress import OutboundPolicy
from tests.sessions.mcp.client.authorization_world import Store

from ..scripted_http import Asked, Line, Peer, scripted_http
from .answers import EACH, TRIES
from .conftest import Tls
from .names import Names
from .wall import PUBLIC, Wall

SERVER = "https://mcp.here.test/mcp"
TARGETS = [
    "http://169.254.169.254/",
    "https://169.254.169.254/",
    "https://internal.test/",
    "http://internal.test/",
    "http://localhost/",
    "http://127.0.0.1/",
    "https://[::ffff:10.0.0.5]/",
    "https://2130706433/",
    "https://127.1/",
    "file:///etc/passwd",
]
#: fields that the client requests, in the order of a flow
USED = ["resource_metadata", "authorization_servers", "registration_endpoint", "token_endpoint"]
#: fields that the client never requests: it does not check token keys, and pages are for a person's browser
UNUSED = ["jwks_uri", "service_documentation", "op_policy_uri", "op_tos_uri", "introspection_endpoint",
          "revocation_endpoint", "userinfo_endpoint", "logo_uri"]  # fmt: skip


def documents(issuer: str, fields: dict[str, str]) -> dict[str, Any]:
    """The documents by path. `fields` replace or add members."""
    ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "registration_endpoint": "register"}
    metadata = {"issuer": issuer, "code_challenge_methods_supported": ["S256"]}
    metadata |= {name: f"{issuer}/{path}" for name, path in ends.items()} | fields
    resource = {"resource": SERVER, "authorization_servers": [fields.get("authorization_servers", issuer)]}
    client = {"client_id": "c", **{name: fields[name] for name in fields if name in UNUSED}}
    return {
        "/.well-known/oauth-protected-resource/mcp": resource | {n: fields[n] for n in fields if n in UNUSED},
        "/.well-known/oauth-authorization-server": metadata,
        "/register": client | {"registration_client_uri": fields.get("logo_uri", "")},
        "/token": {"access_token": "t", "token_type": "Bearer", "expires_in": 1000, "refresh_token": "r"},
    }


@asynccontextmanager
async def world(tls: Tls, issuer: str = "https://as.here.test", **fields: str) -> AsyncIterator[Peer]:
    """The server and its authorization server, both at the public address."""
    said = documents(issuer, fields)

    async def script(asked: Asked, line: Line) -> None:
        body = said.get(asked.path)
        await line.json(body or {}, 200 if body else 404, Connection="close")
        raise ConnectionResetError

    async with scripted_http(script, PUBLIC, 443, ssl=tls.server, reuse_port=True) as peer:
        yield peer


def authorization(tls: Tls, **settings: Any) -> tuple[Authorization, Store]:
    store = Store()
    wanted = AuthorizationSettings(SERVER, **{"redirect_uri": "https://hub.example/back", **settings})
    return Authorization(wanted, store, AuthorizationHttp(OutboundPolicy(), tls.client)), store


async def sign_in(tls: Tls, hint: str = "") -> Grant:
    whole, _ = authorization(tls)
    pending = await whole.begin(metadata_url=hint)
    return await whole.finish(pending, {"state": pending.state, "code": "c"})


async def test_a_sign_in_at_public_addresses_ends_with_a_token(names: Names, wall: Wall, tls: Tls) -> None:
    """The control."""
    async with world(tls):
        assert (await sign_in(tls)).access_token == "t"
    assert await wall.reached() == set()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("field", USED)
async def test_a_field_that_leads_inside_ends_the_sign_in(
    field: str, target: str, names: Names, wall: Wall, tls: Tls
) -> None:
    hint = target if field == "resource_metadata" else ""
    fallen_back = field == "resource_metadata" and target.startswith("file:")  # such a hint counts as none
    async with world(tls, **({} if hint else {field: target})) as peer:
        if fallen_back:
            await sign_in(tls, hint)
        else:
            with pytest.raises((AddressRefused, AuthorizationError)) as caught:
                await sign_in(tls, hint)
            assert not caught.value.may_have_run
    assert bool(peer.asked) is (fallen_back or not hint)
    assert await wall.reached() == set()


@pytest.mark.parametrize("target", TARGETS)
async def test_no_field_that_is_of_no_use_to_a_client_is_ever_asked(
    target: str, names: Names, wall: Wall, tls: Tls
) -> None:
    async with world(tls, **dict.fromkeys(UNUSED, target)):
        assert (await sign_in(tls)).access_token == "t"
    assert (await wall.reached(), names.lookups("internal.test")) == (set(), 0)


@pytest.mark.parametrize("target", TARGETS)
async def test_an_identity_provider_that_is_inside_is_not_asked(
    target: str, names: Names, wall: Wall, tls: Tls
) -> None:
    async def id_token() -> str:
        return "an identity"

    provider = IdentityProvider(target, "c", id_token)
    whole, _ = authorization(tls, flow="enterprise", client_id="c", client_secret="s", identity_provider=provider)
    async with world(tls):
        with pytest.raises((AddressRefused, AuthorizationError)):
            await whole.authorized(0, Demand())
    assert await wall.reached() == set()


@EACH
async def test_an_authorization_server_whose_name_turns_inside_gives_no_token(
    answers: list[list[str]], names: Names, wall: Wall, tls: Tls
) -> None:
    names.zone["turning.here.test"] = answers
    outcomes: list[McpError | None] = []
    async with world(tls, issuer="https://turning.here.test"):
        for _ in range(TRIES):
            try:
                await sign_in(tls)
                outcomes.append(None)
            except McpError as error:
                outcomes.append(error)
    assert isinstance(outcomes[-1], AddressRefused), outcomes
    assert await wall.reached() == set()
