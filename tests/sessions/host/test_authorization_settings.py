"""What an authorization is told about its server."""

import pytest

from sessions.host.authorization.stored_grants import settings_for
from sessions.mcp.oauth.urls import canonical, covers, origin


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("https://host.example/büro/mcp", "https://host.example/b%C3%BCro/mcp"),
        ("wss://bücher.example/mcp?x=ü", "https://xn--bcher-kva.example/mcp?x=%C3%BC"),
        ("https://host.example:8443/mcp/", "https://host.example:8443/mcp"),
    ],
)
def test_tokens_for_a_server_are_for_the_url_that_its_requests_have(url: str, resource: str) -> None:
    server = settings_for(url).server_url
    assert canonical(server) == resource
    assert origin(resource) == origin(server) != ""
    assert covers(resource, canonical(server))


def test_what_is_no_url_is_left_for_the_connection_to_refuse() -> None:
    assert settings_for("https://[::1/mcp").server_url == "https://[::1/mcp"
