"""The groups that a new installation starts with."""

from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.db import connection

from servers.accounts import catalog

pytestmark = pytest.mark.django_db
MIGRATION = import_module("servers.migrations.0001_squashed_0027_oauth_and_service_accounts")


def create() -> None:
    """As the migration runs it; of the schema editor it uses only the connection."""
    MIGRATION.create_groups(apps, SimpleNamespace(connection=connection))


def test_a_new_installation_has_four_groups_whose_permissions_have_an_effect() -> None:
    Group.objects.all().delete()
    create()
    held = {group.name: catalog.permissions_of_groups([group]) for group in Group.objects.all()}
    assert set(held) == {"Administrators", "Operators", "Callers", "Auditors"}
    assert held["Administrators"] == set(catalog.PERMISSIONS)
    assert not held["Callers"] & {"add_server", "change_server", "manage_stdio", "manage_users", "view_auditevent"}
    assert not held["Operators"] & {"manage_stdio", "manage_users", "delete_server"}
    for name, permissions in held.items():
        for permission in permissions:
            assert set(catalog.PERMISSIONS[permission].needs) <= permissions, f"{name}: {permission} has no effect"


def test_a_group_of_the_same_name_is_left_as_it_is() -> None:
    Group.objects.all().delete()
    Group.objects.create(name="Operators")
    create()
    assert catalog.permissions_of_groups([Group.objects.get(name="Operators")]) == frozenset()


def test_the_permissions_that_the_migration_creates_are_those_that_django_would() -> None:
    for model, codenames in MIGRATION.MODELS.items():
        permissions = {**dict(apps.get_model("servers", model)._meta.permissions)}
        for codename, words in codenames.items():
            verb = codename.partition("_")[0]
            name = apps.get_model("servers", model)._meta.verbose_name_raw
            assert words == permissions.get(codename, f"Can {verb} {name}")
