"""The page of settings shows every value with its source, and changes what pages can change."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from mcpadmin import variables
from servers.audit import writer as writing
from servers.audit.record import Actor
from servers.enums import AuditAction
from servers.limits import LIMITS
from servers.models import AuditEvent, Instance, PrivacySettings, Server
from servers.registration.registering import register
from sessions.configuration import reading
from sessions.configuration.reading import Source
from sessions.models import RetentionLimit
from tests.servers.cast import over_stdio
from tests.servers.conftest import admin  # noqa: F401  fixture

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def own_writer() -> Iterator[None]:
    yield
    writing.reset()


@pytest.fixture
def ada(client: Client, admin: Any) -> Client:  # noqa: F811  the fixture
    client.force_login(admin)
    return client


def row(name: str) -> reading.Setting:
    return next(one for section in reading.sections() for one in section.rows if one.name == name)


def names(answer: Any) -> list[str]:
    assert answer.status_code == 200
    return [
        unescape(name) for name in re.findall(r'<div class="setting">\s*<b[^>]*>([^<]+)</b>', answer.content.decode())
    ]


def test_every_variable_and_every_limit_is_on_the_page(ada: Client) -> None:
    shown = names(ada.get("/settings/"))
    known = {one.name for section in variables.VARIABLES.values() for one in section}
    assert known <= set(shown)
    assert len(shown) == len(set(shown))
    assert sum(not limit.variable for limit in LIMITS.values()) == len(reading.sections(source="fixed")[0].rows)


def test_every_variable_that_the_settings_read_is_described() -> None:
    known = {one.name for section in variables.VARIABLES.values() for one in section}
    assert settings.VARIABLES_READ.keys() <= known
    of_up = {"MCPADMIN_HOST", "MCPADMIN_WEB_PROCESSES", "MCPADMIN_USER", "REDIS_URL_WEB", "REDIS_URL_WORKER"}
    assert known - settings.VARIABLES_READ.keys() == of_up


def test_a_value_says_where_it_comes_from(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert row("MCPADMIN_SOCKETS_PER_USER").source == Source.DEFAULT
    assert row("MCPADMIN_SECRET_KEY").source == Source.FILE
    assert row("MCPADMIN_SECRET_KEY").place.endswith("/secret_key")
    monkeypatch.setenv("MCPADMIN_HOST", "0.0.0.0")
    assert (row("MCPADMIN_HOST").source, row("MCPADMIN_HOST").value) == (Source.ENVIRONMENT, "0.0.0.0")
    given = variables.Read(10, 25, given=True)
    settings.VARIABLES_READ = settings.VARIABLES_READ | {"MCPADMIN_SOCKETS_PER_USER": given}
    settings.SOCKETS_PER_USER = 25
    found = row("MCPADMIN_SOCKETS_PER_USER")
    assert (found.source, found.value, found.default) == (
        Source.ENVIRONMENT,
        "25 live connections",
        "10 live connections",
    )
    settings.VARIABLES_SET_BY_UP = frozenset({"MCPADMIN_SOCKETS_PER_USER"})
    assert row("MCPADMIN_SOCKETS_PER_USER").source == Source.UP


def test_a_number_has_its_unit(db: None, settings: Any) -> None:
    assert row("MCPADMIN_SESSION_SECONDS").value == "28,800 s"
    assert row("MCPADMIN_INVITATION_DAYS").value == "7 days"
    assert row("MCPADMIN_CHECKPOINT_EVENTS").value == "1,000 events"
    given = variables.Read(7.0, 1.0, given=True)
    settings.VARIABLES_READ = settings.VARIABLES_READ | {"MCPADMIN_INVITATION_DAYS": given}
    assert row("MCPADMIN_INVITATION_DAYS").value == "1 day"


def test_the_page_refers_to_nothing_that_only_the_documentation_has(ada: Client) -> None:
    page = ada.get("/settings/").content.decode()
    assert re.findall(r"[^.>]*(?:see below|\.md\b|See Containers)[^<]*", page) == []
    assert "needs <code>maxmemory-policy noeviction</code> and a password." in page


def test_no_secret_is_shown(ada: Client, settings: Any) -> None:
    hidden = {
        "MCPADMIN_KEYRING_COMMAND": "vault kv get -token=hunter2",
        "DATABASE_URL": "postgres://ada:hunter2@db/mcp",
        "MCPADMIN_EMAIL_URL": "smtp+tls://ada:hun/ter2@mail.example:587",
        "MCPADMIN_WITNESSES": ["https://witness.example/log?key=hunter2"],
        "MCPADMIN_CONTAINER_RUNTIME": "docker -H tcp://ada:hun/ter2@docker.example:2376",
    }
    read = {name: variables.Read("", value, given=True) for name, value in hidden.items()}
    settings.VARIABLES_READ = settings.VARIABLES_READ | read
    page = ada.get("/settings/").content.decode()
    assert "hunter2" not in page
    assert "ter2" not in page
    assert "mail.example" not in page
    assert "docker -H tcp://…@docker.example:2376" in page
    assert settings.SECRET_KEY not in page


def test_words_and_a_source_narrow_the_list(ada: Client) -> None:
    assert names(ada.get("/settings/?text=inbox+refused")) == ["MCPADMIN_INBOX_OPEN", "MCPADMIN_INBOX_PER_MINUTE"]
    assert "MCPADMIN_DATA_DIR" not in names(ada.get("/settings/?source=fixed"))
    nothing = ada.get("/settings/?text=nothing-has-this-name")
    assert "No matching settings" in nothing.content.decode()
    assert "ignored" in ada.get("/settings/?source=rumour").content.decode().lower()


def test_a_limit_that_servers_override_counts_them(admin: Any) -> None:  # noqa: F811  the fixture
    server = register(Actor.of_user(admin), admin, over_stdio())
    assert row("MCPADMIN_LIMIT_DEPTH").overrides == 0
    Server.objects.filter(pk=server.pk).update(limits={"depth": 32})
    assert row("MCPADMIN_LIMIT_DEPTH").overrides == 1


def test_what_pages_change_is_changed_in_place_and_recorded(ada: Client) -> None:
    saved = ada.post("/settings/storage-calls/", {"calls_days": "30", "calls_mb": ""}, follow=True)
    assert "Saved." in saved.content.decode()
    assert RetentionLimit.objects.get(kind="calls").days == 30
    assert row("Storage: calls").source == Source.PAGE
    ada.post("/settings/privacy-mask_detected/", {"on": "no"})
    assert PrivacySettings.objects.get().mask_detected is False
    ada.post("/settings/registration/", {"on": "yes"})
    assert Instance.objects.get().oauth_registration is True
    assert row("Agents: client registration").source == Source.PAGE
    assert row("Agents: client metadata documents").source == Source.DEFAULT
    ada.post("/settings/documents/", {"on": "no"})
    assert Instance.objects.get().oauth_documents is False
    assert row("Agents: client metadata documents").source == Source.PAGE
    recorded = set(AuditEvent.objects.values_list("action", flat=True))
    changes = {AuditAction.RETENTION_CHANGE, AuditAction.PRIVACY_CHANGE, AuditAction.OAUTH_REGISTRATION_CHANGE}
    assert changes <= recorded


def test_a_wrong_value_is_refused_in_words_beside_it_and_changes_nothing(ada: Client) -> None:
    ada.post("/settings/storage-calls/", {"calls_days": "30"})
    refused = ada.post("/settings/storage-payloads/?source=default", {"payloads_days": "60", "payloads_mb": "7"})
    page = unescape(refused.content.decode())
    assert refused.status_code == 422
    assert page.count("are removed with their calls, after 30 days") == 1
    assert 'name="payloads_days" value="60"' in page, "what was entered is still there"
    assert 'name="payloads_mb" value="7"' in page
    assert not RetentionLimit.objects.filter(kind="payloads").exclude(days=None).exists()
    assert "whole number of 1 or more" in ada.post("/settings/storage-calls/", {"calls_days": "-1"}).content.decode()
    assert "Nothing changed" in ada.post("/settings/storage-calls/", {"calls_days": "30"}, follow=True).content.decode()
    for unknown in ("storage-nothing", "privacy-nothing", "nothing"):
        assert ada.post(f"/settings/{unknown}/").status_code == 404


def test_a_value_that_does_not_go_with_that_of_another_kind_says_so_where_it_was_entered(ada: Client) -> None:
    ada.post("/settings/storage-calls/", {"calls_days": "30"})
    ada.post("/settings/storage-payloads/", {"payloads_days": "20"})
    page = unescape(ada.post("/settings/storage-calls/?text=storage:+calls", {"calls_days": "10"}).content.decode())
    assert 'name="calls_days" value="10"' in page
    assert page.count("are removed with their calls, after 10 days") == 1
    assert RetentionLimit.objects.get(kind="calls").days == 30
