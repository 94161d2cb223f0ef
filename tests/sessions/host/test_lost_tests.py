"""A connection test whose worker is gone is ended; one that waited long for a worker is not."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from servers.enums import DraftState
from servers.models import ServerDraft
from sessions.host import connection_test, tick

pytestmark = pytest.mark.django_db


@pytest.fixture
def waited() -> ServerDraft:
    """A test that found a worker after a quarter of an hour."""
    user = get_user_model().objects.create_user("ada")
    expires_at = timezone.now() + timedelta(minutes=45)
    draft = ServerDraft.objects.create(user=user, transport="stdio", sealed=b"x", key_id="k", expires_at=expires_at)
    ServerDraft.objects.update(created_at=timezone.now() - timedelta(minutes=15))
    assert connection_test.start(draft.uid)
    return draft


def after_the_next_tick(draft: ServerDraft, steps: list[dict[str, Any]]) -> str:
    ServerDraft.objects.update(steps=steps)
    tick._end_lost_tests()
    draft.refresh_from_db()
    return draft.state


def step(minutes: float) -> dict[str, Any]:
    return {"name": "connect", "state": "started", "since": (timezone.now() - timedelta(minutes=minutes)).isoformat()}


def test_a_test_that_waited_long_for_its_worker_runs_on(waited: ServerDraft) -> None:
    assert after_the_next_tick(waited, []) == DraftState.RUNNING
    assert after_the_next_tick(waited, [step(0)]) == DraftState.RUNNING


def test_a_test_whose_step_takes_too_long_has_lost_its_worker(waited: ServerDraft) -> None:
    assert after_the_next_tick(waited, [step(11)]) == DraftState.FAILED


def test_a_test_that_began_no_step_is_ended_when_its_draft_has_expired(waited: ServerDraft) -> None:
    ServerDraft.objects.update(expires_at=timezone.now() - timedelta(minutes=11))
    assert after_the_next_tick(waited, []) == DraftState.FAILED
