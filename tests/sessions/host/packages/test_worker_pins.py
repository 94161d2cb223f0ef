"""Real npx and uvx servers in a real worker, with a registry whose content changes."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as product
from django.contrib.auth import get_user_model
from django.test import Client

from servers.audit.record import Actor
from servers.configuration import Registration, ValueInput
from servers.enums import AuditAction, DraftState, PinState, TransportKind, ValueKind
from servers.models import AuditEvent, PinnedPackage, Server
from servers.packages import pins
from servers.registration.drafts import new_draft
from sessions.connections import commands
from sessions.enums import SessionCondition
from sessions.models import McpSession
from tests.peers.registries import Registries, Release
from tests.sessions.host.harness import WorkerProcess, await_ready, eventually
from tests.sessions.host.make import make_session
from tests.sessions.host.test_worker_probe import over

# On a busy machine each of npm's runs takes ten times as long.
pytestmark = [pytest.mark.integration, pytest.mark.deadline(400)]
NPX = pytest.param("npx", marks=pytest.mark.skipif(shutil.which("npx") is None, reason="npm is not installed"))
UVX = str(Path(sys.executable).with_name("uvx"))


def fields_of(launcher: str, package: str) -> dict[str, Any]:
    if launcher == "npx":
        return {"command": "npx", "arguments": ["-y", package, "--flag"]}
    return {"command": UVX, "arguments": [package, "--flag"]}


@dataclass
class Shop:
    """A registry, and servers that get their package from it. `ran`: what each start of a package's code left."""

    registries: Registries
    folder: Path

    @property
    def ran(self) -> list[str]:
        path = self.folder / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def session(self, launcher: str, slug: str = "notes", package: str = "notes") -> McpSession:
        session = make_session(slug, environment=self.environment, **fields_of(launcher, package))
        commands.wake_owner(session.uid)
        return session

    @property
    def environment(self) -> dict[str, str]:
        return {
            "npm_config_registry": f"{self.registries.url}/npm/",
            "npm_config_cache": str(self.folder / "npm"),
            "npm_config_userconfig": "/dev/null",
            "UV_INDEX_URL": f"{self.registries.url}/simple/",
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "UV_NO_CONFIG": "1",
            "RAN": str(self.folder / "ran"),
        }

    def hash_of(self, launcher: str, version: str) -> str:
        registries = self.registries
        return (
            registries.npm_integrity("notes", version) if launcher == "npx" else registries.pypi_hash("notes", version)
        )

    def forget_caches(self) -> None:
        for name in ("npm", "uv"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def forget_installation(self, server: Server) -> None:
        """As on another machine, or after the folder was lost."""
        shutil.rmtree(Path(product.DATA_DIR) / "servers" / str(server.uid) / "packages")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    registries = Registries()
    registries.publish_helper("1.0.0", "helped")
    registries.publish("1.2.3", "first")
    yield Shop(registries, tmp_path)
    registries.close()


@pytest.fixture
def admin(transactional_db: None) -> Any:
    return get_user_model().objects.create_superuser("ada")


def events(server: Server, action: AuditAction) -> int:
    return AuditEvent.objects.filter(action=action, server_uid=server.uid).count()


def with_condition(session: McpSession, condition: SessionCondition) -> McpSession | None:
    return McpSession.objects.filter(pk=session.pk, condition=condition).first()


def offer_of(server: Server) -> PinnedPackage | None:
    return PinnedPackage.objects.filter(server=server, state=PinState.OFFERED).first()


def page_of(user: Any, server: Server) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/servers/{server.slug}/package/").content.decode()


def reconnect(session: McpSession) -> None:
    commands.reconnect(Actor(None, "ada"), session)


def started_again(shop: Shop, session: McpSession, starts: int) -> None:
    eventually(lambda: len(shop.ran) == starts, 30, "it did not start again")
    await_ready(session)


@pytest.mark.parametrize("launcher", [NPX, pytest.param("uvx", marks=pytest.mark.long)])
def test_a_changed_package_is_not_run_and_a_new_version_waits_for_a_person(
    launcher: str, shop: Shop, shared_worker: WorkerProcess, admin: Any
) -> None:
    session = shop.session(launcher)
    server = session.server
    await_ready(session, 60)
    pin = PinnedPackage.objects.get(server=server)
    assert (pin.name, pin.version, pin.integrity) == ("notes", "1.2.3", shop.hash_of(launcher, "1.2.3"))
    assert (pin.dependencies, pin.state, pin.pinned_by) == (1, PinState.PINNED, None)
    assert shop.ran == ["first helped --flag"]
    assert events(server, AuditAction.PACKAGE_PIN) == 1

    # A new version at the registry: the pinned one runs, and no start asks the registry.
    shop.registries.publish("1.2.4", "second", ("add", "search"))
    shop.registries.fetched.clear()
    reconnect(session)
    started_again(shop, session, 2)
    assert (shop.ran[-1], shop.registries.fetched) == ("first helped --flag", [])

    # Other content under the pinned version, on a machine without a cached copy.
    shop.registries.publish("1.2.3", "thief")
    shop.forget_caches()
    shop.forget_installation(server)
    reconnect(session)
    refused = eventually(partial(with_condition, session, SessionCondition.REFUSED), 60, "it was not refused")
    assert (refused.fault, refused.fault_step) == ("package_changed", "package")
    assert "The registry now offers different content for notes 1.2.3." in refused.fault_detail
    assert "Nothing was run." in refused.fault_detail
    assert (len(shop.ran), events(server, AuditAction.PACKAGE_REFUSE)) == (2, 1)

    # The page says so and offers the new version, with its tools once a person asked for them.
    offer = eventually(partial(offer_of, server), 60, "nothing was offered")
    shown = page_of(admin, server)
    assert "The registry now offers different content for notes 1.2.3" in shown
    assert "Update available: 1.2.4" in shown
    assert "Not compared yet" in shown
    assert len(shop.ran) == 2
    actor = Actor.of_user(admin)
    pins.request_comparison(actor, admin, server, offer.integrity)
    eventually(lambda: PinnedPackage.objects.filter(pk=offer.pk, compared_at__isnull=False), 60, "not compared")
    assert "1 added, 0 removed, 0 changed, 1 unchanged" in " ".join(page_of(admin, server).split())
    assert shop.ran[2:] == ["second helped --flag"]

    # Taken by a person, it runs from what was installed, also without the registry.
    shop.registries.close()
    pins.update(actor, admin, server, offer.integrity)
    started_again(shop, session, 4)
    assert shop.ran[-1] == "second helped --flag"
    assert events(server, AuditAction.PACKAGE_UPDATE) == 1
    other = shop.session(launcher, "other", "elsewhere")
    waiting = eventually(partial(with_condition, other, SessionCondition.BACKING_OFF), 60, "it did not fail")
    assert waiting.fault == "package_unavailable"
    assert "could not be looked up in the" in waiting.fault_detail
    assert "It is not pinned yet." in waiting.fault_detail


def test_a_connection_test_installs_in_a_step_of_its_own_and_pins_nothing(
    shop: Shop, shared_worker: WorkerProcess, admin: Any
) -> None:
    values = [ValueInput(ValueKind.ENVIRONMENT, name, False, value) for name, value in shop.environment.items()]
    actor, fields = Actor.of_user(admin), fields_of("uvx", "notes")
    folders = [str(shop.folder)]
    registration = Registration(
        name="Notes", transport=TransportKind.STDIO, values=values, writable_paths=folders, **fields
    )
    draft = new_draft(actor, admin, registration)
    commands.test_draft(actor, draft)
    done = over(draft)
    assert done.state == DraftState.SUCCEEDED, done.detail
    [step] = [one for one in done.steps if one["name"] == "package"]
    assert (step["state"], step["detail"]) == ("finished", f"notes 1.2.3, {shop.hash_of('uvx', '1.2.3')}")
    assert (done.report["tools"], shop.ran) == (1, ["first helped --flag"])
    assert not PinnedPackage.objects.exists()


HOSTILE = """
import json, sys
def main():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            error = {"code": -32000, "message": "nothing\\0 \\ud800here"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


def test_what_an_offered_version_says_is_stored_without_what_a_database_refuses(
    shop: Shop, shared_worker: WorkerProcess, admin: Any
) -> None:
    session = shop.session("uvx")
    server = session.server
    await_ready(session, 60)
    release = Release({"notes.py": HOSTILE.encode()}, {"helper": ">=1"}, True)
    shop.registries.pypi["notes"]["1.2.4"] = release.wheel("notes", "1.2.4")
    pins.request_check(Actor.of_user(admin), admin, server)
    offer = eventually(partial(offer_of, server), 60, "nothing was offered")
    pins.request_comparison(Actor.of_user(admin), admin, server, offer.integrity)
    eventually(lambda: PinnedPackage.objects.filter(pk=offer.pk, compared_at__isnull=False), 60, "not compared")
    offer.refresh_from_db()
    assert "nothing" in offer.compare_problem
    assert "\0" not in offer.compare_problem
    assert "\ud800" not in offer.compare_problem


def test_a_changed_dependency_is_refused_too_and_accepted_by_a_person(
    shop: Shop, shared_worker: WorkerProcess, admin: Any
) -> None:
    session = shop.session("uvx")
    server = session.server
    await_ready(session, 60)
    shop.registries.publish_helper("1.0.0", "changed")
    shop.forget_caches()
    shop.forget_installation(server)
    reconnect(session)
    refused = eventually(partial(with_condition, session, SessionCondition.REFUSED), 60, "it was not refused")
    assert "different content for helper 1.0.0, which notes needs" in refused.fault_detail
    assert len(shop.ran) == 1

    offer = eventually(partial(offer_of, server), 60, "nothing was offered")
    shown = page_of(admin, server)
    for words in ("content for helper, which notes 1.2.3 needs", "1 with different content", "Pin the new content"):
        assert words in " ".join(shown.split())
    pins.update(Actor.of_user(admin), admin, server, offer.integrity)
    started_again(shop, session, 2)
    assert shop.ran[-1] == "first changed --flag"
    assert events(server, AuditAction.PACKAGE_REPIN) == 1
