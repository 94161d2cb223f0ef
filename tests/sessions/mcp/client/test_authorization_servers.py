"""Which server is asked for a token and which receives it: nothing from one authorization server is shown to
another."""

import asyncio
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from sessions.mcp.client.authorization import Authorization, AuthorizationSettings, Grant
from sessions.mcp.core.errors import AuthorizationError, SignInNeeded
from sessions.mcp.transports.authorizing import Refusal
from tests.sessions.mcp.client.authorization_world import EXPIRED, ISSUER, SERVER, Store, World, signed_in, token


async def test_nothing_of_the_old_authorization_server_is_shown_to_the_new_one() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    world.issuers, world.refuse = ["https://new.example"], [{"error": "invalid_grant"}]
    trial = authorization.trial("x")
    await token(trial)
    before = len(world.asked)
    assert await trial.refused(EXPIRED)
    assert await token(trial) == "Bearer t2"
    assert store.grant is not None
    assert store.grant.issuer == "https://new.example"
    new = [one for one in world.asked[before:] if one.url.startswith("https://new.example")]
    sent = {
        value for one in new for value in (*dict(parse_qsl((one.body or b"").decode())).values(), *one.headers.values())
    }
    # Whole values: the verifier is random, so two letters of a token occur in it now and then.
    assert sent.isdisjoint({"r1", "t1", "Bearer t1", "as.example-1"})
    assert world.registered == 2


@pytest.mark.parametrize("error", ["invalid_client", "unauthorized_client"])
async def test_a_client_that_the_server_forgot_is_registered_again_once(error: str) -> None:
    world, store = World(), Store()
    world.refuse = [{"error": error}]
    await signed_in(world, store)
    assert (world.registered, world.signed_in) == (2, 2)
    world.refuse = [{"error": error}] * 3
    trial = world.authorization(Store()).trial("x")
    await token(trial)
    with pytest.raises(AuthorizationError, match=error):
        await trial.refused(Refusal(401))


async def test_a_client_that_the_server_forgot_is_registered_again_after_a_refused_renewal() -> None:
    world, store = World(), Store()
    await signed_in(world, store)
    session = world.authorization(store, person=False)
    trial = session.trial("x")
    await token(trial)
    world.refuse = [{"error": "unauthorized_client"}]
    with pytest.raises(SignInNeeded):
        await trial.refused(EXPIRED)
    assert store.grant is not None
    assert (store.grant.registration, store.grant.signed_in) == (None, False)
    await session.begin()
    assert world.registered == 2


@pytest.mark.parametrize(("error", "registered"), [("unauthorized_client", 2), ("access_denied", 1)])
async def test_the_redirect_of_a_sign_in_tells_whether_the_server_still_knows_the_client(
    error: str, registered: int
) -> None:
    world, store = World(), Store()
    authorization = world.authorization(store, person=False)
    pending = await authorization.begin()
    with pytest.raises(AuthorizationError, match=error):
        await authorization.finish(pending, {"state": pending.state, "error": error})
    world.now += 3600
    await authorization.begin()
    assert world.registered == registered


async def test_a_registration_is_kept_though_the_person_does_not_come_back() -> None:
    world, store = World(), Store()
    authorization = world.authorization(store, person=False)
    first, second = await authorization.begin(), await authorization.begin()
    assert world.registered == 1
    assert first.state != second.state
    assert first.verifier != second.verifier
    assert len(first.state) >= 43


async def test_a_sign_in_from_which_no_one_came_back_is_followed_by_one_with_a_new_client() -> None:
    """A server that no longer knows the client says so on its own page, so nothing comes back."""
    world, store = World(), Store()
    authorization = world.authorization(store, person=False)
    await authorization.begin()
    world.now += 61
    pending = await authorization.begin()
    assert world.registered == 2
    await authorization.finish(pending, {"state": pending.state, "code": "c"})
    world.now += 3600
    await authorization.begin()
    assert world.registered == 2


async def test_a_document_that_the_server_could_not_fetch_is_followed_by_a_registration() -> None:
    world, store = World(), Store()
    world.metadata |= {"client_id_metadata_document_supported": True}
    ours = {"metadata_document": "https://hub.example/client.json"}
    authorization = world.authorization(store, person=False, **ours)
    assert "client.json" in (await authorization.begin()).url
    assert "client.json" in (await authorization.begin()).url
    world.now += 61
    pending = await authorization.begin()
    assert (world.registered, "client.json" in pending.url) == (1, False)
    await authorization.finish(pending, {"state": pending.state, "code": "c"})
    await authorization.begin()
    assert world.registered == 1


async def test_a_client_id_that_was_entered_stays_bound_to_its_issuer_though_no_one_came_back() -> None:
    world, store = World(), Store()
    by_hand = world.authorization(store, person=False, client_id="mine")
    await by_hand.begin()
    world.now += 61
    world.issuers = ["https://new.example"]
    with pytest.raises(AuthorizationError, match="was entered for https://as"):
        await by_hand.begin()


async def test_a_scope_that_the_server_no_longer_knows_is_not_asked_for_again() -> None:
    world, store = World(), Store()
    world.resource, world.rotates = {"scopes_supported": ["old"]}, False
    authorization = await signed_in(world, store)
    world.resource = {"scopes_supported": ["new"]}
    pending = await authorization.begin()
    assert set(dict(parse_qsl(urlsplit(pending.url).query))["scope"].split()) == {"old", "new"}
    with pytest.raises(AuthorizationError, match="invalid_scope"):
        await authorization.finish(pending, {"state": pending.state, "error": "invalid_scope"})
    again = await authorization.begin()
    assert dict(parse_qsl(urlsplit(again.url).query))["scope"] == "new"
    assert world.registered == 1


async def test_a_client_id_that_was_entered_once_is_used_for_every_further_sign_in_until_it_is_forgotten() -> None:
    world, store = World(), Store()
    await signed_in(world, store, client_id="mine", client_secret="canary-secret")
    world.metadata |= {"client_id_metadata_document_supported": True}
    ours = {"metadata_document": "https://hub.example/client.json"}
    again = await world.authorization(store, person=False, **ours).begin()
    assert dict(parse_qsl(urlsplit(again.url).query))["client_id"] == "mine"
    assert again.grant.registration is not None
    assert again.grant.registration.secret == "canary-secret"
    moved = await world.authorization(store, person=False, redirect_uri="https://new.example/back").begin()
    assert dict(parse_qsl(urlsplit(moved.url).query))["redirect_uri"] == "https://new.example/back"
    assert world.registered == 0
    forgotten = await world.authorization(store, person=False, forget_client=True).begin()
    assert dict(parse_qsl(urlsplit(forgotten.url).query))["client_id"] == "as.example-1"
    world.issuers = ["https://new.example"]
    with pytest.raises(AuthorizationError, match="was entered for https://as"):
        await world.authorization(store, person=False).begin()
    assert world.registered == 1


async def test_a_client_that_was_entered_for_everyone_is_used_at_its_issuer_before_any_registration() -> None:
    world, everyone, store = World(), Store(), Store()
    await signed_in(world, everyone, client_id="ours", client_secret="canary-secret")
    assert everyone.grant is not None
    shared = everyone.grant.registration
    first = await world.authorization(store, person=False, shared_client=shared).begin()
    assert first.grant.registration == shared
    assert shared is not None
    renewed = replace(shared, secret="canary-renewed")
    second = await world.authorization(store, person=False, shared_client=renewed).begin()
    assert second.grant.registration == renewed
    mine = Store()
    await world.authorization(mine, person=False, client_id="mine").begin()
    assert "client_id=mine" in (await world.authorization(mine, person=False, shared_client=shared).begin()).url
    world.issuers = ["https://new.example"]
    elsewhere = await world.authorization(Store(), person=False, shared_client=shared).begin()
    assert "client_id=new.example-1" in elsewhere.url


async def test_a_sign_in_that_no_one_completes_leaves_our_tokens_the_client_that_they_were_given_to() -> None:
    world, store = World(), Store()
    session = await signed_in(world, store)
    by_hand = world.authorization(store, person=False, client_id="other", client_secret="mistyped")
    pending = await by_hand.begin()
    world.refuse = [{"error": "invalid_client"}]
    with pytest.raises(AuthorizationError, match="invalid_client"):
        await by_hand.finish(pending, {"state": pending.state, "code": "c"})
    trial = session.trial("x")
    assert await token(trial) == "Bearer t1"
    assert await trial.refused(EXPIRED)
    assert [one["client_id"] for one in world.token_requests()] == ["as.example-1", "other", "as.example-1"]
    again = await by_hand.begin()
    await by_hand.finish(again, {"state": again.state, "code": "c"})
    assert store.grant is not None
    assert store.grant.registration is not None
    assert store.grant.registration.client_id == "other"


async def test_a_sign_in_that_begins_during_a_renewal_does_not_bring_the_old_tokens_back() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    assert store.grant is not None
    store.grant = replace(store.grant, registration=None)  # so that the sign-in has something to store
    trial = authorization.trial("x")
    await token(trial)
    world.gate.clear()
    world.registering = asyncio.Event()
    begun = asyncio.create_task(world.authorization(store, person=False).begin())
    await world.registering.wait()
    store.grant = replace(store.grant, access_token="t9", refresh_token="r9", generation=9)
    world.gate.set()
    await begun
    assert (store.grant.access_token, store.grant.refresh_token) == ("t9", "r9")
    assert store.grant.registration is not None


async def test_a_sign_in_that_fails_leaves_the_tokens_that_we_have() -> None:
    world, store = World(), Store()
    await signed_in(world, store)
    other = world.authorization(store, person=False)
    pending = await other.begin()
    world.refuse = [{"error": "invalid_client"}]
    with pytest.raises(AuthorizationError, match="invalid_client"):
        await other.finish(pending, {"state": pending.state, "code": "c"})
    assert store.grant is not None
    assert store.grant.access_token == "t1"
    assert store.grant.registration is None


async def test_a_sign_in_that_began_at_another_address_of_the_server_brings_no_token() -> None:
    world, store = World(), Store()
    pending = await world.authorization(store, person=False).begin()
    world.server = "https://moved.example/mcp"
    moved = AuthorizationSettings(world.server, redirect_uri="https://hub.example/back")
    there = Authorization(moved, store, world, clock=lambda: world.now)
    with pytest.raises(AuthorizationError, match="address has changed since this sign-in began"):
        await there.finish(pending, {"state": pending.state, "code": "c"})
    assert world.token_requests() == []


async def test_a_sign_in_ends_after_ten_minutes() -> None:
    world, store = World(), Store()
    authorization = world.authorization(store, person=False)
    pending = await authorization.begin()
    world.now += 601
    with pytest.raises(AuthorizationError, match="has expired"):
        await authorization.finish(pending, {"state": pending.state, "code": "c"})
    assert world.token_requests() == []


@pytest.mark.parametrize(
    "wrong", [{"iss": "https://evil.example"}, {"state": "other"}, {"code": ""}, {"error": "access_denied"}]
)
async def test_a_forged_answer_sends_no_code_to_any_token_endpoint(wrong: dict[str, str]) -> None:
    world, store = World(), Store()
    authorization = world.authorization(store, person=False)
    pending = await authorization.begin()
    with pytest.raises(AuthorizationError):
        await authorization.finish(pending, {"state": pending.state, "code": "c"} | wrong)
    assert world.token_requests() == []


# -- token audience


@pytest.mark.parametrize(
    "url", ["https://evil.example/mcp", "http://mcp.example/mcp", "https://mcp.example:8443/mcp", "https://mcp.example.evil/mcp"]
)  # fmt: skip
async def test_a_token_is_sent_to_its_own_origin_only(url: str) -> None:
    world, store = World(), Store()
    trial = (await signed_in(world, store)).trial("x")
    assert await trial.headers("POST", url) == {}
    assert await trial.headers("POST", "https://mcp.example/mcp/sub") == {"Authorization": "Bearer t1"}


async def test_a_service_gets_its_token_without_anyone_and_renews_it() -> None:
    world, store = World(), Store()
    world.rotates = False
    service = {"flow": "client_credentials", "client_id": "me", "client_secret": "s", "person": False}
    authorization = await signed_in(world, store, **service)
    world.now += 5000
    assert await token(authorization.trial("x")) == "Bearer t2"
    assert [one["grant_type"] for one in world.token_requests()] == ["client_credentials"] * 2
    assert world.registered == 0


async def test_an_assertion_that_was_rejected_is_not_tried_once_more() -> None:
    async def platform() -> str:
        return "a.b.c"

    world = World()
    world.refuse = [{"error": "invalid_grant"}] * 5
    settings = {"flow": "workload", "client_id": "me", "workload_token": platform}
    trial = world.authorization(Store(), person=False, **settings).trial("x")
    await token(trial)
    with pytest.raises(AuthorizationError, match="invalid_grant"):
        await trial.refused(Refusal(401))
    assert len(world.token_requests()) == 1


async def test_the_nonce_of_the_server_is_not_that_of_its_authorization_server() -> None:
    world, store = World(), Store()
    world.resource |= {"dpop_signing_alg_values_supported": ["ES256"]}
    await signed_in(world, store)
    store.grant = replace(store.grant or Grant(ISSUER), token_type="DPoP", generation=9)
    other = world.authorization(store, person=False)
    trial = other.trial("x")
    first = await trial.headers("POST", SERVER)
    assert first["Authorization"] == "DPoP t1"
    challenge = Refusal(401, ('DPoP error="use_dpop_nonce"',), "n1")
    assert await trial.refused(challenge)
    assert (await trial.headers("POST", SERVER))["DPoP"] != first["DPoP"]
    assert other.signing.nonce_for(SERVER) == "n1"
    assert other.signing.nonce_for(f"{ISSUER}/token") == ""
    trial.answered("n2")
    assert other.signing.nonce_for(SERVER) == "n2"
    await trial.headers("POST", SERVER)
    assert await trial.refused(replace(challenge, dpop_nonce="n2"))  # no longer a nonce challenge, so fetch a new token
    assert world.given == 2
