"""The authorization server is found where the specification says, and its metadata is trusted only for its own
issuer."""

from typing import Any

import pytest

from sessions.mcp.core.errors import AuthorizationError, TransportError
from sessions.mcp.oauth import resource_metadata, server_metadata
from sessions.mcp.oauth.urls import canonical, covers, is_secure
from tests.sessions.mcp.oauth.walking import documents, walk

SERVER = "https://mcp.example/a/mcp"
AT_PATH = "https://mcp.example/.well-known/oauth-protected-resource/a/mcp"
AT_ROOT = "https://mcp.example/.well-known/oauth-protected-resource"
GOOD = {"resource": SERVER, "authorization_servers": ["https://as.example"]}


def urls(requests: list[Any]) -> list[str]:
    return [one.url for one in requests]


def resource(found: dict[str, Any], hints: tuple[str, ...] = (), server: str = SERVER) -> Any:
    return walk(resource_metadata.find(server, hints), documents(found))


def test_the_address_in_the_challenge_comes_first_and_is_the_only_one_when_it_answers() -> None:
    hint = "https://elsewhere.example/meta.json"
    metadata, asked = resource({hint: GOOD, AT_PATH: GOOD}, (hint,))
    assert metadata.issuers == ("https://as.example",)
    assert urls(asked) == [hint]


def test_without_it_the_path_is_tried_and_then_the_root() -> None:
    metadata, asked = resource(
        {AT_ROOT: {**GOOD, "resource": "https://mcp.example", "scopes_supported": ["a", 1, "b"]}}
    )
    assert urls(asked) == [AT_PATH, AT_ROOT]
    assert (metadata.resource, metadata.scopes) == ("https://mcp.example", ("a", "b"))


def test_a_server_at_the_root_of_its_host_is_asked_once() -> None:
    assert resource_metadata.candidates("https://mcp.example/", ()) == [AT_ROOT]


def test_a_hint_that_leads_nowhere_is_passed_over() -> None:
    metadata, asked = resource({AT_PATH: GOOD}, ("/relative", "https://mcp.example/gone"))
    assert metadata is not None
    assert urls(asked) == ["https://mcp.example/gone", AT_PATH]


@pytest.mark.parametrize(
    "hint", ["http://169.254.169.254/latest", "http://internal.test/x", "https://u:p@mcp.example/x"]
)
def test_a_hint_that_is_no_https_address_ends_it_before_a_byte_is_sent(hint: str) -> None:
    with pytest.raises(AuthorizationError, match="not an https address"):
        resource({}, (hint,))


def test_no_metadata_at_all_is_no_error() -> None:
    assert resource({})[0] is None


def test_a_server_that_fails_for_the_moment_is_not_taken_for_one_without_metadata() -> None:
    with pytest.raises(TransportError, match="503") as failed:
        resource({AT_PATH: 503})
    assert not failed.value.permanent
    assert not failed.value.may_have_run


@pytest.mark.parametrize(
    "other",
    ["https://evil.example/a/mcp", "https://mcp.example/a/m", "https://mcp.example:8443/a/mcp", "http://mcp.example/a/mcp",
     "https://mcp.example/a/mcp#x", "https://mcp.example/a/mcp/deeper", "not a url"],
)  # fmt: skip
def test_metadata_of_another_resource_stops_everything(other: str) -> None:
    with pytest.raises(AuthorizationError, match="for another address"):
        resource({AT_PATH: {**GOOD, "resource": other}})


@pytest.mark.parametrize(
    "same", [SERVER, "https://MCP.example/a/mcp", "https://mcp.example:443/a", "https://mcp.example/"]
)
def test_a_resource_that_covers_the_server_is_good(same: str) -> None:
    assert covers(same, SERVER)
    assert resource({AT_PATH: {**GOOD, "resource": same}})[0].resource == same  # and the value is never rewritten


@pytest.mark.parametrize("named", [[], None, "https://as.example", [7]])
def test_metadata_that_names_no_authorization_server_stops_everything(named: Any) -> None:
    with pytest.raises(AuthorizationError, match="does not name an authorization server"):
        resource({AT_PATH: {**GOOD, "authorization_servers": named}})


# -- the authorization server


def document(issuer: str, **more: Any) -> dict[str, Any]:
    return {"issuer": issuer, "token_endpoint": f"{issuer}/token", **more}


def test_an_issuer_with_a_path_is_looked_for_in_three_places_and_never_at_its_root() -> None:
    issuer = "https://as.example/tenant"
    last = "https://as.example/tenant/.well-known/openid-configuration"
    server, asked = walk(server_metadata.find(issuer), documents({last: document(issuer)}))
    assert server.token_endpoint == "https://as.example/tenant/token"
    assert urls(asked) == [
        "https://as.example/.well-known/oauth-authorization-server/tenant",
        "https://as.example/.well-known/openid-configuration/tenant",
        last,
    ]


def test_an_issuer_without_a_path_is_looked_for_in_two_places() -> None:
    second = "https://as.example/.well-known/openid-configuration"
    server, asked = walk(
        server_metadata.find("https://as.example"), documents({second: document("https://as.example")})
    )
    assert server.issuer == "https://as.example"
    assert len(asked) == 2


@pytest.mark.parametrize(
    "named", ["https://as.example/", "https://AS.example", "https://as.example:443", "https://evil.example"]
)
def test_a_document_of_another_issuer_is_not_used_however_alike(named: str) -> None:
    at = "https://as.example/.well-known/oauth-authorization-server"
    with pytest.raises(AuthorizationError, match="names another issuer"):
        walk(server_metadata.find("https://as.example"), documents({at: document(named)}))


BAD = ["http://as.example/token", "javascript:alert(1)", "data:text/html,x", "http://169.254.169.254/", 7,
       "https://as.example/token#f", "https://u@as.example/token", "https://as.example/to ken", "//as.example/token"]  # fmt: skip
ENDPOINTS = ("token_endpoint", "authorization_endpoint", "registration_endpoint")


@pytest.mark.parametrize(
    ("name", "endpoint"),
    [*((name, bad) for name in ENDPOINTS for bad in BAD), ("token_endpoint", ""), ("token_endpoint", None)],
)
def test_an_endpoint_that_is_no_https_address_is_refused(name: str, endpoint: Any) -> None:
    at = "https://as.example/.well-known/oauth-authorization-server"
    found = documents({at: document("https://as.example", **{name: endpoint})})
    with pytest.raises(AuthorizationError, match=name.replace("_", " ")):
        walk(server_metadata.find("https://as.example"), found)


@pytest.mark.parametrize("issuer", ["http://as.example", "ftp://as.example", "as.example", "https://"])
def test_an_issuer_that_is_no_https_address_is_not_asked(issuer: str) -> None:
    with pytest.raises(AuthorizationError, match="not an https address"):
        walk(server_metadata.find(issuer), documents({}))


def test_before_2025_06_18_the_server_is_its_own_authorization_server() -> None:
    server, asked = walk(server_metadata.find_beside(SERVER), documents({}))
    assert urls(asked) == ["https://mcp.example/.well-known/oauth-authorization-server"]
    assert server.authorization_endpoint == "https://mcp.example/authorize"
    assert (server.token_endpoint, server.registration_endpoint) == (
        "https://mcp.example/token",
        "https://mcp.example/register",
    )


def test_its_own_metadata_is_believed_only_under_its_own_name() -> None:
    at = "https://mcp.example/.well-known/oauth-authorization-server"
    found = documents({at: document("https://mcp.example", token_endpoint="https://mcp.example/oauth/token")})
    assert walk(server_metadata.find_beside(SERVER), found)[0].token_endpoint == "https://mcp.example/oauth/token"
    with pytest.raises(AuthorizationError, match="names another issuer"):
        walk(server_metadata.find_beside(SERVER), documents({at: document("https://evil.example")}))


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        ("https://a.example", True),
        ("http://localhost:3000", True),
        ("http://127.0.0.2/x", True),
        ("http://[::1]:8/x", True),
        ("http://a.example", False),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("http://10.0.0.1", False),
        ("https://a.example\\@b.example", False),
        ("https://а.example", False),
        ("wss://a.example", False),
    ],
    ids=str,
)
def test_only_https_is_used_and_plain_http_only_within_this_machine(url: str, secure: bool) -> None:
    assert is_secure(url) is secure


def test_a_websocket_server_has_the_identifier_of_its_handshake() -> None:
    assert canonical("wss://MCP.example:443/a/") == "https://mcp.example/a"
    assert canonical("ws://localhost:8000") == "http://localhost:8000"
