"""An operator may accept one wrong issuer for one pair of addresses, and for nothing else."""

from typing import Any

import pytest

from sessions.mcp.core.errors import AuthorizationError
from sessions.mcp.oauth.challenges import Demand
from sessions.mcp.oauth.flows import discover
from sessions.mcp.oauth.grant import Grant
from sessions.mcp.oauth.settings import AuthorizationSettings, ExpectedIssuer
from tests.sessions.mcp.oauth.walking import documents, walk

SERVER = "https://mcp.example/mcp"
NAMED, ISSUER = "https://as.example/", "https://as.example"
AT_SERVER = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
AT_NAMED = "https://as.example/.well-known/oauth-authorization-server"
AT_EVIL = "https://evil.example/.well-known/oauth-authorization-server"


def found(*named: str, expected: ExpectedIssuer | None = None, known: Grant | None = None, **carried: str) -> Any:
    """Discover a server that names these authorization servers; `carried` gives the issuer in the metadata of each."""
    at = {"as_": AT_NAMED, "evil": AT_EVIL}
    metadata = {
        at[name]: {"issuer": issuer, "token_endpoint": "https://as.example/t"} for name, issuer in carried.items()
    }
    world = documents(metadata | {AT_SERVER: {"resource": SERVER, "authorization_servers": list(named)}})
    settings = AuthorizationSettings(SERVER, expected=expected)
    return walk(discover(settings, Demand(), known), world)[0]


def test_without_a_choice_it_is_refused_and_the_way_out_is_said() -> None:
    with pytest.raises(AuthorizationError, match=r"names another issuer.*settings page, under Credentials"):
        found(NAMED, as_=ISSUER)


def test_the_expected_issuer_is_the_one_that_everything_is_bound_to() -> None:
    assert found(NAMED, as_=ISSUER, expected=ExpectedIssuer(NAMED, ISSUER)).server.issuer == ISSUER


@pytest.mark.parametrize(
    ("named", "carried"),
    [
        ("https://evil.example", {"evil": ISSUER}),
        (NAMED, {"as_": "https://evil.example"}),
        (NAMED, {"as_": NAMED}),
        (NAMED, {"as_": f"{ISSUER}:443"}),
    ],
    ids=["another is named", "another is found", "not the expected one", "not byte for byte"],
)
def test_whatever_else_is_named_or_found_is_refused(named: str, carried: dict[str, str]) -> None:
    with pytest.raises(AuthorizationError, match="names another issuer"):
        found(named, **carried, expected=ExpectedIssuer(NAMED, ISSUER))


def test_of_several_that_are_named_the_known_one_is_found_under_its_expected_issuer() -> None:
    grant = Grant(ISSUER)
    expected = ExpectedIssuer(NAMED, ISSUER)
    several = ("https://evil.example", NAMED)
    assert (
        found(*several, as_=ISSUER, evil="https://evil.example", expected=expected, known=grant).server.issuer == ISSUER
    )


def test_a_server_without_metadata_may_carry_the_expected_one_too() -> None:
    at = "https://mcp.example/.well-known/oauth-authorization-server"
    world = documents({at: {"issuer": ISSUER, "token_endpoint": "https://mcp.example/t"}})
    expected = ExpectedIssuer("https://mcp.example", ISSUER)
    settings = AuthorizationSettings(SERVER, expected=expected)
    assert walk(discover(settings, Demand(), None), world)[0].server.issuer == ISSUER
    with pytest.raises(AuthorizationError):
        walk(discover(AuthorizationSettings(SERVER), Demand(), None), world)


@pytest.mark.parametrize("wished", [NAMED, ISSUER])
def test_the_one_that_an_operator_chose_is_found_by_either_address(wished: str) -> None:
    world = documents(
        {AT_NAMED: {"issuer": ISSUER, "token_endpoint": "https://as.example/t"}}
        | {AT_SERVER: {"resource": SERVER, "authorization_servers": ["https://evil.example", NAMED]}}
    )
    settings = AuthorizationSettings(SERVER, issuer=wished, expected=ExpectedIssuer(NAMED, ISSUER))
    assert walk(discover(settings, Demand(), None), world)[0].server.issuer == ISSUER
    with pytest.raises(AuthorizationError, match="does not name"):
        walk(discover(AuthorizationSettings(SERVER, issuer=ISSUER), Demand(), None), world)
