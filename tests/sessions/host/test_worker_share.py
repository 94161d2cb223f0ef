"""Two real workers share servers evenly, both those registered together and all of them after a start."""

import sys
from collections import Counter
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from servers.audit.record import Actor
from servers.registration.importing.applying import Choice, Decision, apply
from servers.registration.importing.document import read
from servers.registration.importing.planning import plan
from sessions.models import McpSession
from tests.sessions.host.conftest import StartWorker
from tests.sessions.host.harness import EFFECT_SERVER, Effects, await_ready, effect_session, eventually

pytestmark = [pytest.mark.integration, pytest.mark.deadline(300)]


def import_servers(admin: Any, effects: Effects, *names: str) -> None:
    lines = [
        f"  {name}:\n    command: {sys.executable}\n    args: [{EFFECT_SERVER}]\n    env: {{EFFECT_LOG: effects.log}}"
        for name in names
    ]
    document = read("mcpServers:\n" + "\n".join(lines))
    proposals = plan(admin, document)
    outcomes = apply(
        Actor.of_user(admin), admin, document, proposals, {n: Decision(Choice.CREATE) for n in range(len(names))}
    )
    assert {outcome.result for outcome in outcomes} == {"created"}


def shares() -> list[int]:
    return sorted(Counter(McpSession.objects.filter(state="ready").values_list("owner_id", flat=True)).values())


@pytest.fixture
def admin(transactional_db: None) -> Any:
    return get_user_model().objects.create_superuser("ada")


def test_an_import_spreads_its_sessions_over_the_workers(
    start_worker: StartWorker, admin: Any, effects: Effects
) -> None:
    start_worker("w1", MCPADMIN_STALE_SECONDS="30")
    start_worker("w2", MCPADMIN_STALE_SECONDS="30")
    import_servers(admin, effects, *(f"server-{number}" for number in range(6)))
    eventually(lambda: sum(shares()) == 6, 60)
    assert shares() == [3, 3]


def test_after_a_worker_joined_new_servers_go_to_it_and_live_sessions_stay(
    start_worker: StartWorker, admin: Any, effects: Effects
) -> None:
    start_worker("w1", MCPADMIN_STALE_SECONDS="30")
    first = [effect_session(effects, f"first-{number}") for number in range(3)]
    for session in first:
        await_ready(session)
    before = list(McpSession.objects.order_by("pk").values_list("pk", "owner_id", "epoch"))
    start_worker("w2", MCPADMIN_STALE_SECONDS="30")
    import_servers(admin, effects, "second-1", "second-2", "second-3")
    eventually(lambda: sum(shares()) == 6, 60)
    assert shares() == [3, 3]
    assert list(McpSession.objects.order_by("pk").values_list("pk", "owner_id", "epoch"))[:3] == before


@pytest.mark.long
def test_the_first_worker_of_two_that_start_leaves_the_other_its_share(
    start_worker: StartWorker, effects: Effects
) -> None:
    for number in range(4):
        effect_session(effects, f"server-{number}")
    start_worker("w1", MCPADMIN_WORKERS="2", MCPADMIN_STALE_SECONDS="30")
    eventually(lambda: sum(shares()) == 2)
    start_worker("w2", MCPADMIN_WORKERS="2", MCPADMIN_STALE_SECONDS="30")
    eventually(lambda: sum(shares()) == 4)
    assert shares() == [2, 2]


@pytest.mark.long
def test_a_share_that_no_one_comes_for_is_taken_after_the_stale_period(
    start_worker: StartWorker, effects: Effects
) -> None:
    for number in range(2):
        effect_session(effects, f"server-{number}")
    start_worker("w1", MCPADMIN_WORKERS="2")
    eventually(lambda: shares() == [2], 30)
