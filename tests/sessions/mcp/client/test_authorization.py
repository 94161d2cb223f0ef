"""One token holder serves many requests with one refresh, loses nothing when a request is cancelled, and never
loops."""

import asyncio

import pytest

from sessions.mcp.client.authorization import SignInNeeded
from sessions.mcp.core.errors import AuthorizationError, Fault, TransportError
from sessions.mcp.transports.authorizing import Refusal
from tests.sessions.mcp.client.authorization_world import EXPIRED, Store, World, signed_in, token


def more(*scopes: str) -> Refusal:
    return Refusal(403, (f'Bearer error="insufficient_scope", scope="{" ".join(scopes)}"',))


async def test_the_first_refusal_sends_a_person_and_the_token_is_kept() -> None:
    world, store = World(), Store()
    await signed_in(world, store)
    assert store.grant is not None
    assert (store.grant.access_token, store.grant.refresh_token, store.grant.generation) == ("t1", "r1", 1)
    again = world.authorization(store, person=False)
    assert await token(again.trial("x")) == "Bearer t1"


async def test_without_a_person_the_request_waits_for_a_sign_in_and_nothing_is_asked_of_anyone() -> None:
    world = World()
    trial = world.authorization(Store(), person=False).trial("x")
    await token(trial)
    with pytest.raises(SignInNeeded) as needed:
        await trial.refused(Refusal(401, ('Bearer resource_metadata="https://mcp.example/m", scope="a b"',)))
    assert (needed.value.metadata_url, needed.value.scopes) == ("https://mcp.example/m", ("a", "b"))
    assert needed.value.scheme == "bearer"
    assert needed.value.fault is Fault.UNAUTHORIZED
    assert not needed.value.may_have_run
    assert world.asked == []


async def test_twenty_parallel_requests_with_an_expired_token_end_in_one_refresh() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    trials = [authorization.trial("tools/call") for _ in range(20)]
    assert {await token(one) for one in trials} == {"Bearer t1"}
    world.gate.clear()
    refusals = asyncio.gather(*(one.refused(EXPIRED) for one in trials))
    await asyncio.sleep(0.01)
    world.gate.set()
    assert await refusals == [True] * 20
    assert {await token(one) for one in trials} == {"Bearer t2"}
    assert [one["grant_type"] for one in world.token_requests()] == ["authorization_code", "refresh_token"]


async def test_two_processes_with_one_grant_refresh_it_once() -> None:
    world, store = World(), Store()
    holders = [await signed_in(world, store), world.authorization(store)]
    trials = [one.trial("x") for one in holders]
    assert [await token(one) for one in trials] == ["Bearer t1"] * 2
    assert await asyncio.gather(*(one.refused(EXPIRED) for one in trials)) == [True, True]
    assert [await token(one) for one in trials] == ["Bearer t2"] * 2
    assert world.given == 2


async def test_a_token_near_its_end_is_renewed_before_it_is_sent() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    world.now += 950
    assert await token(authorization.trial("x")) == "Bearer t2"
    assert world.token_requests()[1]["refresh_token"] == "r1"


async def test_a_refresh_that_fails_early_is_no_reason_to_fail_while_the_token_holds() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    away = TransportError(Fault.TIMEOUT, "away", may_have_run=False)
    world.now, world.refuse = world.now + 950, [away, away]
    assert [await token(authorization.trial("x")) for _ in range(20)] == ["Bearer t1"] * 20
    assert len(world.refuse) == 1  # the refresh is not repeated for each of them
    world.now += 100
    with pytest.raises(TransportError, match="away"):
        await token(authorization.trial("x"))
    assert store.grant is not None
    assert store.grant.refresh_token == "r1"  # nothing was refused, so the refresh token is kept


async def test_a_token_that_still_holds_is_sent_at_once_while_its_renewal_hangs_and_no_one_is_hammered() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    world.now += 950
    world.gate.clear()
    assert [await token(authorization.trial("x")) for _ in range(20)] == ["Bearer t1"] * 20
    world.gate.set()
    await authorization.settle()
    assert await token(authorization.trial("x")) == "Bearer t2"
    assert len(world.token_requests()) == 2


async def test_a_token_without_a_refresh_token_is_used_until_the_server_refuses_it() -> None:
    world, store = World(), Store()
    world.rotates = False
    authorization = await signed_in(world, store)
    world.now += 5000
    assert await token(authorization.trial("x")) == "Bearer t1"
    assert world.given == 1


async def test_everyone_who_waits_for_a_refresh_is_told_of_its_failure_after_one_try() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    trials = [authorization.trial("x") for _ in range(10)]
    for one in trials:
        await token(one)
    world.refuse = [TransportError(Fault.TIMEOUT, "away", may_have_run=False)] * 10
    world.gate.clear()
    waiting = asyncio.gather(*(one.refused(EXPIRED) for one in trials), return_exceptions=True)
    await asyncio.sleep(0.01)
    world.gate.set()
    assert [type(one) for one in await waiting] == [TransportError] * 10
    assert len(world.refuse) == 9


async def test_a_request_that_is_given_up_during_a_refresh_does_not_lose_the_new_token() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    trial = authorization.trial("x")
    await token(trial)
    world.gate.clear()
    waiting = asyncio.create_task(trial.refused(EXPIRED))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait([waiting])
    world.gate.set()
    await authorization.settle()
    assert store.grant is not None
    assert (store.grant.access_token, store.grant.refresh_token) == ("t2", "r2")


async def test_a_refresh_token_that_was_revoked_is_forgotten_and_a_person_is_asked() -> None:
    world, store = World(), Store()
    await signed_in(world, store)
    alone = world.authorization(store, person=False)
    trial = alone.trial("x")
    await token(trial)
    world.refuse = [{"error": "invalid_grant"}]
    with pytest.raises(SignInNeeded):
        await trial.refused(EXPIRED)
    assert store.grant is not None
    assert not store.grant.signed_in
    assert not store.grant.refresh_token
    assert store.grant.registration is not None
    new = await signed_in_again(world, store)
    assert new == "Bearer t2"


async def signed_in_again(world: World, store: Store) -> str:
    trial = world.authorization(store).trial("x")
    await token(trial)
    assert await trial.refused(EXPIRED)
    return await token(trial)


async def test_a_token_that_is_refused_right_after_it_was_given_is_not_asked_for_again() -> None:
    world, store = World(), Store()
    world.rotates = False
    trial = world.authorization(store).trial("x")
    await token(trial)
    assert await trial.refused(Refusal(401))
    await token(trial)
    with pytest.raises(AuthorizationError, match="does not accept the token"):
        await trial.refused(EXPIRED)
    assert world.signed_in == 1


async def test_a_stream_beside_the_requests_refreshes_but_never_asks_a_person() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    stream = authorization.trial("", interactive=False)
    await token(stream)
    assert await stream.refused(EXPIRED)
    assert await token(stream) == "Bearer t2"
    assert not await stream.refused(EXPIRED)
    assert world.signed_in == 1


# -- step-up


async def test_missing_permissions_are_asked_for_beside_those_that_we_have() -> None:
    world, store = World(), Store()
    trial = world.authorization(store).trial("tools/call")
    await token(trial)
    assert await trial.refused(Refusal(401, ('Bearer scope="read"',)))
    await token(trial)
    assert await trial.refused(more("write"))
    assert await token(trial) == "Bearer t2"
    assert world.scopes == ["read", "read write"]


async def test_a_server_that_never_has_enough_permissions_is_given_up() -> None:
    world, store = World(), Store()
    authorization = await signed_in(world, store)
    tried = []
    for _ in range(5):
        trial = authorization.trial("tools/call")
        await token(trial)
        tried.append([await trial.refused(more("admin")), await trial.refused(more("admin"))])
    assert tried == [[True, False]] * 2 + [[False, False]] * 3
    assert world.signed_in == 3


async def test_a_refusal_that_names_no_missing_permission_stands() -> None:
    world, store = World(), Store()
    trial = (await signed_in(world, store)).trial("x")
    await token(trial)
    assert not await trial.refused(Refusal(403, ("Bearer",)))
    assert not await trial.refused(Refusal(403))
    assert not await trial.refused(Refusal(401, ('Basic realm="x"',)))
    assert world.signed_in == 1


async def test_permissions_that_only_a_person_can_give_leave_the_session_signed_in() -> None:
    world, store = World(), Store()
    await signed_in(world, store)
    trial = world.authorization(store, person=False).trial("x")
    await token(trial)
    with pytest.raises(SignInNeeded, match="requires more permissions") as needed:
        await trial.refused(more("write"))
    assert needed.value.fault is Fault.INSUFFICIENT_SCOPE
    assert store.grant is not None
    assert store.grant.signed_in


async def test_without_a_person_each_call_is_told_of_the_missing_permission_however_often() -> None:
    world, store = World(), Store()
    await signed_in(world, store)
    authorization = world.authorization(store, person=False)
    for _ in range(5):
        trial = authorization.trial("tools/call")
        await token(trial)
        with pytest.raises(SignInNeeded, match=r"requires more permissions \(write\)"):
            await trial.refused(more("write"))
    assert world.signed_in == 1


async def test_a_permission_that_was_given_and_is_still_asked_for_sends_no_one_to_sign_in_again() -> None:
    world, store = World(), Store()
    trial = (await signed_in(world, store)).trial("tools/call")
    await token(trial)
    assert await trial.refused(more("write"))
    again = world.authorization(store, person=False).trial("tools/call")
    await token(again)
    with pytest.raises(
        AuthorizationError, match=r"although the required permissions were granted \(write\)"
    ) as refused:
        await again.refused(more("write"))
    assert refused.value.fault is Fault.FORBIDDEN
    assert not isinstance(refused.value, SignInNeeded)
