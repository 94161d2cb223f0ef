"""The server settings that an authorization receives."""

from typing import Any

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


@pytest.mark.parametrize(
    ("url", "last"),
    [
        ("https://mcpadmin.example.org", False),
        ("https://mcp.corp.example.org:8443", False),
        ("https://203.0.114.7", False),
        ("https://localhost:8443", True),
        ("https://mcpadmin", True),
        ("https://mcpadmin.corp.lan", True),
        ("https://mcpadmin.home.arpa.", True),
        ("https://10.0.0.5", True),
        ("https://[::1]:8443", True),
        ("https://[fd00::5]", True),
    ],
)
def test_an_instance_that_the_internet_cannot_reach_registers_before_it_names_its_document(
    url: str, last: bool, settings: Any
) -> None:
    settings.PUBLIC_URL = url
    made = settings_for("https://host.example/mcp")
    assert made.metadata_document == f"{url}/oauth/client.json"
    assert made.document_last is last
