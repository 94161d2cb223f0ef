"""Signing in with a wrong password, again and again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.test import Client

from servers.enums import AuditAction
from servers.models import AuditEvent

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _nobody_is_throttled_yet() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def visitor() -> Client:
    get_user_model().objects.create_user("ada", password=PASSWORD)
    return Client(REMOTE_ADDR="192.0.2.9")


def sign_in(visitor: Client, password: str) -> Any:
    return visitor.post("/accounts/login/", {"login": "ada", "password": password})


def failures() -> list[tuple[str, str, str]]:
    events = AuditEvent.objects.filter(action=AuditAction.SIGN_IN_FAILED).order_by("seq")
    return [(event.subject, event.ip, json.loads(event.body)["details"].get("reason", "")) for event in events]


def test_after_five_wrong_passwords_the_next_is_refused_in_words_and_each_is_in_the_log(visitor: Client) -> None:
    for _ in range(5):
        assert "not correct" in sign_in(visitor, "wrong").content.decode()
    for password in ("wrong", PASSWORD):
        assert "Too many failed login attempts. Try again later." in sign_in(visitor, password).content.decode()
    assert failures() == [("ada", "192.0.2.9", "")] * 5 + [("ada", "192.0.2.9", "throttled")] * 2


def test_after_the_wait_the_right_password_signs_in_from_the_same_address(visitor: Client) -> None:
    for _ in range(6):
        sign_in(visitor, "wrong")
    cache.clear()  # what five minutes do to the counters
    assert sign_in(visitor, PASSWORD).headers["Location"] == "/"
    assert AuditEvent.objects.filter(action=AuditAction.SIGN_IN).count() == 1
