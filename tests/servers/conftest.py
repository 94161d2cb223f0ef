"""The users: an administrator with all permissions, an operator who registers HTTP servers, a visitor who only
views."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import environ
import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connections

from servers.audit import writer as writing
from servers.audit.record import Actor


@pytest.fixture(autouse=True)
def _a_writer_of_its_own() -> Iterator[None]:
    """The writer thread keeps a connection, and the next test may use another database."""
    yield
    writing.reset()


def person(name: str, *permissions: str, **fields: Any) -> Any:
    """A user with these permissions of the app `servers`. Fetched again, because the object caches its permissions."""
    user = get_user_model().objects.create_user(name, password="correct horse battery", **fields)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="servers", codename__in=permissions))
    return get_user_model().objects.get(pk=user.pk)


@pytest.fixture
def admin(db: None) -> Any:
    return get_user_model().objects.create_superuser("ada", password="correct horse battery")


@pytest.fixture
def operator(db: None) -> Any:
    return person("otto", "view_server", "add_server", "change_server", "delete_server", "call_tool")


@pytest.fixture
def visitor(db: None) -> Any:
    return person("vera", "view_server")


@pytest.fixture
def actor(admin: Any) -> Actor:
    return Actor.of_user(admin, "192.0.2.7", "request-0001")


@pytest.fixture
def on_postgres(postgres_url: str, django_db_blocker: Any) -> Iterator[None]:
    """Make `default` a fresh PostgreSQL database with our tables, in every thread."""
    sqlite = connections.settings["default"]
    with django_db_blocker.unblock():
        connections["default"].close()
        connections.settings["default"] = sqlite | {"OPTIONS": {}, "TEST": sqlite["TEST"]} | _postgres(postgres_url)
        del connections["default"]
        writing.reset()  # its thread may have a connection to the other database
        try:
            call_command("flush", verbosity=0, interactive=False)  # other tests use this database too
            yield
        finally:
            writing.reset()
            call_command("flush", verbosity=0, interactive=False)
            connections["default"].close()
            connections.settings["default"] = sqlite
            del connections["default"]


def _postgres(url: str) -> dict[str, Any]:
    config = environ.Env.db_url_config(url)
    config["HOST"] = unquote(config["HOST"])  # a socket directory is percent-encoded in a URL
    return {name: config[name] for name in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT") if name in config}
