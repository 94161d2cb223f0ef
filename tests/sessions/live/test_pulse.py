"""The health of the pipeline, as a web process says it to its pages."""

import asyncio
from datetime import timedelta

import pytest
from django.utils import timezone

from sessions.hints import outage
from sessions.live.pulse import Pulse
from sessions.live.reader import Reader
from sessions.models import Worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker():
    now = timezone.now()
    later = now + timedelta(hours=1)  # the row stays fresh however slow the machine is
    return Worker.objects.create(node="w@m", machine="m", pid=1, started_at=now, heartbeat_at=later)


async def test_the_first_page_of_a_process_is_not_told_of_an_outage_because_no_heartbeat_came_yet(worker, settings):
    settings.HEARTBEAT_SECONDS = 0.3
    said: asyncio.Queue[str] = asyncio.Queue()
    outage.since = None
    pulse = Pulse(Reader(), lambda: True, lambda health: said.put_nowait(health.state), lambda: None)
    pulse.look()
    running = asyncio.create_task(pulse.run())
    try:
        assert await said.get() == "ok"
        assert await said.get() == "broker", "heartbeats reach the row and never this process"
    finally:
        running.cancel()
