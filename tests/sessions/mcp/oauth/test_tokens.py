"""What is sent to a token endpoint, and what is kept of its answer."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sessions.mcp.core.errors import AuthorizationError, TransportError
from sessions.mcp.oauth import flows
from sessions.mcp.oauth.exchange import HttpRequest, HttpResponse
from sessions.mcp.oauth.grant import Grant, Registration
from sessions.mcp.oauth.settings import AuthorizationSettings, IdentityProvider
from sessions.mcp.oauth.tokens import TokenRefused
from tests.sessions.mcp.oauth.walking import Signer, fields, walk

SETTINGS = AuthorizationSettings("https://mcp.example/mcp", client_id="me")
CLIENT = Registration("https://as.example", "me", "dynamic", "p w:/", "client_secret_basic", "https://hub.example/back")
GRANT = Grant(
    "https://as.example",
    CLIENT,
    resource="https://mcp.example/mcp",
    token_endpoint="https://as.example/token",
    access_token="old-access",
    refresh_token="old-refresh",
    scopes_requested=("a", "b"),
    scopes_granted=("a",),
    generation=4,
)
GOOD = {"access_token": "new-access", "token_type": "bearer", "expires_in": 100}


def saying(body: Any, status: int = 200, **headers: str) -> Callable[[HttpRequest], HttpResponse]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda _: HttpResponse(status, {name.replace("_", "-"): value for name, value in headers.items()}, data)


def renewed(
    answer: Callable[[HttpRequest], HttpResponse],
    grant: Grant = GRANT,
    settings: AuthorizationSettings = SETTINGS,
    signer: Signer | None = None,
    given: str = "",
) -> tuple[Grant, list[HttpRequest]]:
    return walk(flows.renew(settings, grant, signer or Signer(), given, 1000.0), answer)


def test_a_refresh_says_which_token_for_which_server() -> None:
    _, [asked] = renewed(saying(GOOD))
    assert (asked.verb, asked.url) == ("POST", "https://as.example/token")
    assert fields(asked) == {
        "grant_type": "refresh_token",
        "refresh_token": "old-refresh",
        "client_id": "me",
        "resource": "https://mcp.example/mcp",
    }


@pytest.mark.parametrize(
    ("method", "header", "added"),
    [
        ("client_secret_basic", "Basic bWU6cCt3JTNBJTJG", {"client_id": "me"}),
        ("client_secret_post", None, {"client_id": "me", "client_secret": "p w:/"}),
        ("none", None, {"client_id": "me"}),
        (
            "private_key_jwt",
            None,
            {
                "client_id": "me",
                "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                "client_assertion": "assertion of me for https://as.example",
            },
        ),
    ],
)
def test_who_we_are_is_said_in_the_way_that_was_agreed(method: Any, header: str | None, added: dict[str, str]) -> None:
    _, [asked] = renewed(saying(GOOD), replace(GRANT, registration=replace(CLIENT, endpoint_auth=method)))
    assert asked.headers.get("Authorization") == header
    sent = fields(asked)
    assert {key: value for key, value in sent.items() if key.startswith("client_")} == added


def test_what_the_answer_leaves_out_stays_and_what_it_gives_is_new() -> None:
    kept, _ = renewed(saying(GOOD))
    assert (kept.access_token, kept.token_type, kept.refresh_token) == ("new-access", "Bearer", "old-refresh")
    assert (kept.obtained_at, kept.expires_at, kept.generation) == (1000.0, 1100.0, 5)
    assert kept.scopes_granted == ("a",)
    rotated, _ = renewed(saying(GOOD | {"refresh_token": "next", "scope": "a c"}))
    assert (rotated.refresh_token, rotated.scopes_granted) == ("next", ("a", "c"))


@pytest.mark.parametrize(
    ("said", "expires"),
    [(None, None), ("60", 1060.0), (60.5, 1060.5), ("soon", None), (0, None), (-5, None), (True, None), ("nan", None),
     (10**400, None), (10**12, 1000.0 + 315_360_000), ([], None)],
)  # fmt: skip
def test_a_lifetime_that_is_not_said_is_not_made_up(said: Any, expires: float | None) -> None:
    kept, _ = renewed(saying({**GOOD, "expires_in": said}))
    assert kept.expires_at == expires


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", {"access_token": ""}, {"access_token": 7, "token_type": "bearer"}, {"token_type": "bearer"},
     {"access_token": "a b", "token_type": "bearer"}, {"access_token": "a\r\nX: y", "token_type": "bearer"},
     {"access_token": "x" * 40_000, "token_type": "bearer"}, {"access_token": "x", "token_type": "mac"},
     {"access_token": "x"}, {"access_token": "x", "token_type": "DPoP"}, b"[" * 5000],

)  # fmt: skip
def test_an_answer_without_a_token_that_could_be_sent_is_no_answer(body: Any) -> None:
    with pytest.raises(AuthorizationError):
        renewed(saying(body))


@pytest.mark.parametrize("given", ["r\ud800", "r\0", "r\n", "ü"])
def test_a_refresh_token_that_no_request_could_carry_is_refused(given: str) -> None:
    with pytest.raises(AuthorizationError, match="refresh token that cannot be sent"):
        renewed(saying({**GOOD, "refresh_token": given}))


@pytest.mark.parametrize("code", ["temporarily_unavailable", "server_error", "slow_down"])
def test_a_refusal_for_the_moment_is_none_of_the_token(code: str) -> None:
    with pytest.raises(TransportError, match=f"right now. It says: {code}") as failed:
        renewed(saying({"error": code}, 400))
    assert not failed.value.permanent


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_refusal_carries_its_code_and_none_of_our_secrets(method: Any) -> None:
    client = replace(CLIENT, secret="s3cret:/word", endpoint_auth=method)
    said = "token old-refresh of s3cret:/word or s3cret%3A%2Fword is unknown"
    if method == "client_secret_basic":
        said += ", header Basic bWU6czNjcmV0JTNBJTJGd29yZA=="
    with pytest.raises(TokenRefused) as refused:
        renewed(saying({"error": "invalid_grant", "error_description": said}, 400), replace(GRANT, registration=client))
    assert refused.value.error == "invalid_grant"
    assert "invalid_grant (token … of … or … is unknown" in refused.value.detail
    assert "bWU6" not in refused.value.detail


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_fails_for_the_moment_refuses_nothing(status: int) -> None:
    with pytest.raises(TransportError) as failed:
        renewed(saying({"error": "invalid_grant"}, status))
    assert not failed.value.permanent


# -- DPoP (RFC 9449)


def test_a_token_that_is_bound_is_asked_for_with_a_proof() -> None:
    bound = replace(GRANT, dpop_key="key")
    kept, [asked] = renewed(saying(GOOD | {"token_type": "dpop"}), bound)
    assert asked.headers["DPoP"] == "proof key POST https://as.example/token "
    assert kept.token_type == "DPoP"


def test_a_nonce_that_the_server_wants_is_used_once_more_and_from_then_on() -> None:
    signer, bound = Signer(), replace(GRANT, dpop_key="key")
    answers = iter([saying({"error": "use_dpop_nonce"}, 400, dpop_nonce="n1"), saying(GOOD, dpop_nonce="n2")])
    _, asked = renewed(lambda request: next(answers)(request), bound, signer=signer)
    assert [one.headers["DPoP"][-2:] for one in asked] == ["n ", "n1"]
    assert signer.nonces == {"https://as.example/token": "n2"}


def test_a_server_that_never_has_enough_of_nonces_is_refused() -> None:
    with pytest.raises(TokenRefused, match="use_dpop_nonce"):
        renewed(saying({"error": "use_dpop_nonce"}, 400, dpop_nonce="n"), replace(GRANT, dpop_key="key"))


# -- grants without a person


def test_client_credentials_are_a_grant_of_their_own() -> None:
    _, [asked] = renewed(saying(GOOD), settings=replace(SETTINGS, flow="client_credentials"))
    assert fields(asked) == {
        "grant_type": "client_credentials",
        "client_id": "me",
        "scope": "a b",
        "resource": "https://mcp.example/mcp",
    }


def test_a_workload_hands_over_the_token_of_its_platform_and_nothing_else() -> None:
    public = replace(GRANT, registration=replace(CLIENT, endpoint_auth="none", secret=""))
    _, [asked] = renewed(saying(GOOD), public, replace(SETTINGS, flow="workload"), given="platform.jwt")
    sent = fields(asked)
    assert sent["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert (sent["assertion"], sent["client_id"]) == ("platform.jwt", "me")


def test_an_identity_is_exchanged_at_its_provider_first() -> None:
    async def source() -> str:
        return "id.jwt"

    provider = IdentityProvider("https://idp.example/token", "there", source, "their-secret")
    settings = replace(SETTINGS, flow="enterprise", identity_provider=provider)
    jag = {
        "access_token": "id-jag",
        "token_type": "N_A",
        "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag",
    }
    answers = iter([saying(jag), saying(GOOD)])
    kept, [at_provider, at_server] = renewed(lambda request: next(answers)(request), settings=settings, given="id.jwt")
    first, second = fields(at_provider), fields(at_server)
    assert at_provider.url == "https://idp.example/token"
    assert (first["subject_token"], first["audience"], first["resource"]) == (
        "id.jwt",
        "https://as.example",
        "https://mcp.example/mcp",
    )
    assert (second["assertion"], at_server.url) == ("id-jag", "https://as.example/token")
    assert "id-jag" not in json.dumps(kept.to_data())
    assert "their-secret" not in str(second)


def test_an_identity_provider_that_gives_another_kind_of_token_is_not_believed() -> None:
    async def source() -> str:
        return "id.jwt"

    provider = IdentityProvider("https://idp.example/token", "there", source)
    settings = replace(SETTINGS, flow="enterprise", identity_provider=provider)
    wrong = {"access_token": "x", "token_type": "Bearer", "issued_token_type": "urn:ietf:params:oauth:token-type:jwt"}
    with pytest.raises(AuthorizationError, match="different kind of token"):
        renewed(saying(wrong), settings=settings, given="id.jwt")


# -- storage


def test_a_grant_survives_its_rest_as_json_and_shows_no_secret() -> None:
    full = replace(GRANT, dpop_key='{"d":"private"}')
    assert Grant.from_data(json.loads(json.dumps(full.to_data()))) == full
    for secret in ("old-access", "old-refresh", "private", "p w:/"):
        assert secret not in repr(full)
    assert Grant.from_data({"issuer": "x", "of_a_later_version": 1}) == Grant("x")


@pytest.mark.parametrize(
    ("life", "now", "stale"),
    [(3600, 3539, False), (3600, 3540, True), (30, 26, False), (30, 27, True), (30, 40, True), (None, 10**9, False)],
)
def test_a_token_is_renewed_shortly_before_its_end(life: float | None, now: float, stale: bool) -> None:
    assert replace(GRANT, obtained_at=0.0, expires_at=life).stale(now) is stale
