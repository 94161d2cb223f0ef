"""The flush between tests empties what tests wrote and leaves the database as the migrations left it."""

import threading
import time
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models.signals import post_migrate
from django.utils import timezone

from mcpadmin import settings as product
from tests.servers.conftest import on_postgres  # noqa: F401  a fixture


def rows() -> dict[str, int]:
    """The number of rows of each non-empty table."""
    models = apps.get_models(include_auto_created=True)
    counted = {model._meta.db_table: model._default_manager.count() for model in models}
    return {table: count for table, count in counted.items() if count}


def write_and_flush(admin: Any) -> tuple[dict[str, int], dict[str, int]]:
    group = Group.objects.create(name="ops")
    group.permissions.set(Permission.objects.all())
    admin.groups.add(group)
    before = rows()
    call_command("flush", verbosity=0, interactive=False)
    return before, rows()


def assert_only_permissions_stay(before: dict[str, int], after: dict[str, int]) -> None:
    assert {"auth_user", "auth_user_groups", "auth_group", "auth_group_permissions"} <= before.keys()
    assert after == {table: before[table] for table in ("auth_permission", "django_content_type")}


@pytest.mark.django_db(transaction=True)
def test_a_flush_empties_every_table_but_permissions_and_content_types(admin_user: Any) -> None:
    known = set(Permission.objects.values_list("pk", "codename", "content_type__model"))
    assert_only_permissions_stay(*write_and_flush(admin_user))
    assert set(Permission.objects.values_list("pk", "codename", "content_type__model")) == known


@pytest.mark.usefixtures("on_postgres")
def test_a_flush_of_postgresql_empties_the_same_tables(django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        assert_only_permissions_stay(*write_and_flush(User.objects.create_user("ada")))


@pytest.mark.usefixtures("on_postgres")
def test_after_a_flush_of_postgresql_the_next_row_is_number_one_again(django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        assert [Group.objects.create(name=name).pk for name in ("ops", "support")] == [1, 2]
        call_command("flush", verbosity=0, interactive=False)
        assert Group.objects.create(name="ops").pk == 1


@pytest.mark.usefixtures("on_postgres")
def test_a_flush_of_postgresql_waits_for_a_transaction_that_another_connection_has_open(django_db_blocker: Any) -> None:
    written = threading.Event()

    def write() -> None:
        try:
            with transaction.atomic():
                Session.objects.create(session_key="k", expire_date=timezone.now())
                written.set()
                time.sleep(0.2)
        finally:
            connection.close()

    with django_db_blocker.unblock():
        writer = threading.Thread(target=write)
        writer.start()
        assert written.wait(10)
        call_command("flush", verbosity=0, interactive=False)
        writer.join()
        assert not Session.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_flush_does_not_pretend_that_migrations_ran() -> None:
    received: list[object] = []

    def listener(**details: object) -> None:
        received.append(details)

    post_migrate.connect(listener)
    try:
        call_command("flush", verbosity=0, interactive=False)
    finally:
        post_migrate.disconnect(listener)
    assert received == []


@pytest.mark.django_db
def test_content_types_are_looked_up_again_after_a_flush(django_assert_num_queries: Any) -> None:
    known = ContentType.objects.get_for_model(Permission)
    call_command("flush", verbosity=0, interactive=False)
    with django_assert_num_queries(1):
        assert ContentType.objects.get_for_model(Permission) == known


@pytest.mark.django_db
def test_sqlite_waits_for_the_disk_in_the_product_and_not_in_tests() -> None:
    with connection.cursor() as cursor:
        assert cursor.execute("PRAGMA synchronous").fetchone() == (0,)
    assert "synchronous=FULL" in product.DATABASES["default"]["OPTIONS"]["init_command"]
