"""Pages never claim that all is well while a worker is killed or the message broker hangs."""

import os
import re
import signal
import sys

import pytest
from playwright.sync_api import expect

from mcpadmin.settings import DEMO_COMMAND

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow, pytest.mark.long]
DEMO = DEMO_COMMAND[1:]


def test_pages_say_at_once_that_a_worker_was_killed_and_that_the_broker_hangs(make_stack, walker) -> None:
    # The heartbeats alone would show the loss only after 60 s. Anything shown sooner came from the supervisor of `up`.
    slow = {"MCPADMIN_STALE_SECONDS": "60", "MCPADMIN_LOG_FORMAT": "json"}
    stack = make_stack(env=slow, administrator=True).start()
    ada, bob = walker(stack, signed_in=True), walker(stack, signed_in=True)
    for person in (ada, bob):
        person.complaints.allow("Failed to load resource")
    ada.register_stdio("Demo", sys.executable, DEMO)
    ada.wait_for_state("Ready")
    bob.open("/sessions/")
    pill = ada.page.locator("[data-live-pill]")
    expect(pill).to_contain_text(re.compile(r"Live · \d+ ms"))
    expect(bob.page.locator("#worker-board")).to_contain_text("all responding")

    worker = stack.worker_pids()[0]
    os.kill(worker, signal.SIGSTOP)
    expect(pill).to_contain_text(re.compile(r"Worker not responding for \d+ s"))
    os.kill(worker, signal.SIGCONT)
    expect(pill).to_contain_text("Live")
    stack.kill_worker()
    expect(ada.state()).to_contain_text(re.compile("Worker stopped|Waiting for a worker"))
    ada.wait_for_state("Ready", seconds=60)
    expect(pill).to_contain_text("Live")

    valkey = stack.part("valkey-server")[0].pid
    os.kill(valkey, signal.SIGSTOP)
    try:
        expect(pill).to_contain_text("Delayed: message broker unreachable", timeout=30_000)
    finally:
        os.kill(valkey, signal.SIGCONT)
    expect(pill).to_contain_text("Live", timeout=30_000)
