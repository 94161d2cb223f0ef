"""A copied installation opens no session until an administrator releases it. An ordinary start is not a copy."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

from servers import instance
from servers.audit.record import record_many
from servers.models import AuditEvent, Instance
from sessions.connections import assignment
from tests.servers.conftest import person
from tests.sessions.host.make import make_session, make_worker

pytestmark = pytest.mark.django_db
HERE = {"kind": "sqlite", "file": "17:1000", "machine": "m1", "path": "/data/db"}


def start_at(monkeypatch: pytest.MonkeyPatch, **facts: str) -> bool:
    """Start with the database at this path. Returns whether the instance lock is held afterwards."""
    monkeypatch.setattr(instance, "place", lambda: {**HERE, **facts} if facts != {"kind": ""} else {})
    record_many(instance.check())
    return instance.is_held()


@pytest.mark.parametrize(
    "facts",
    [
        {},  # a restart
        {"path": "/srv/db"},  # the directory was renamed, or mounted elsewhere
        {"machine": ""},  # now in a container, on the same volume
        {"kind": ""},  # the place cannot be determined
        {"file": ""},  # a file system without stable inode numbers, at the same path
    ],
)
def test_an_ordinary_start_is_no_copy(monkeypatch: pytest.MonkeyPatch, facts: dict[str, str]) -> None:
    assert not start_at(monkeypatch)
    assert not start_at(monkeypatch, **facts)
    assert not start_at(monkeypatch)


@pytest.mark.parametrize(
    "facts",
    [
        {"file": "18:2000"},  # copied or restored
        {"machine": "m2"},  # the whole disk was cloned
        {"kind": "postgresql", "system": "7", "database": "5"},
    ],
)
def test_a_copy_is_held_until_it_is_released(monkeypatch: pytest.MonkeyPatch, facts: dict[str, str]) -> None:
    start_at(monkeypatch)
    make_session("files")
    worker = make_worker()
    assert start_at(monkeypatch, **facts)
    assert start_at(monkeypatch, **facts)
    assert assignment.claim_some(worker.pk) == []
    call_command("release_instance")
    assert len(assignment.claim_some(worker.pk)) == 1
    assert not start_at(monkeypatch, **facts)
    actions = AuditEvent.objects.filter(action__startswith="instance:").order_by("seq").values_list("action", flat=True)
    assert list(actions) == ["instance:copy:hold", "instance:copy:release"]


def test_what_comes_back_to_its_place_is_released_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    start_at(monkeypatch)
    assert start_at(monkeypatch, file="18:2000")
    assert not start_at(monkeypatch)


def test_of_a_file_its_copy_differs_and_its_new_name_does_not(tmp_path: Path) -> None:
    file = tmp_path / "db"
    file.write_text("rows")
    mark = instance.file_mark(file)
    copied = shutil.copy2(file, tmp_path / "copy")
    assert instance.file_mark(copied) != mark
    file.write_text("more rows")
    file.chmod(0o600)
    assert instance.file_mark(file.rename(tmp_path / "renamed")) == mark


def test_this_database_has_a_place() -> None:
    assert instance.place()["kind"] in ("sqlite", "postgresql")


def test_only_an_administrator_sees_the_banner_and_releases(client: Client, monkeypatch: Any) -> None:
    start_at(monkeypatch)
    start_at(monkeypatch, file="18:2000")
    other = Client()
    other.force_login(person("rita", "view_server"))
    assert "on hold" not in other.get("/").content.decode()
    assert other.post("/instance/release/").status_code == 403
    client.force_login(get_user_model().objects.create_superuser("ada"))
    page = client.get("/servers/").content.decode()
    assert "This instance is on hold" in page
    assert "copied or restored" in page
    assert "Released" in client.post("/instance/release/", follow=True).content.decode()
    assert not Instance.objects.exclude(held_at=None).exists()
    assert AuditEvent.objects.order_by("-seq")[0].actor_name == "ada"
    assert "already released" in client.post("/instance/release/", follow=True).content.decode()
