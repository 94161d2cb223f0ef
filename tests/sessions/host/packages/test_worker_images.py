"""Container images run by the digest that the first start found, with an engine that a test scripts."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as product

from servers.audit.record import Actor
from servers.enums import Ecosystem, PinState
from servers.models import PinnedPackage
from servers.packages import pins
from sessions.connections import commands
from sessions.enums import SessionCondition
from sessions.models import McpSession
from tests.sessions.host.harness import WorkerProcess, await_ready, eventually
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.integration
ONE, TWO, THREE = (f"sha256:{letter * 64}" for letter in "123")


class Engine:
    def __init__(self, folder: Path) -> None:
        self.store = folder / "store.json"
        self.program = folder / "docker"
        shutil.copy(ENGINE, self.program)
        self.program.chmod(0o755)
        self.put(registry={"acme/notes": ONE}, here={}, tags={})

    def put(self, **parts: Any) -> None:
        known = json.loads(self.store.read_text()) if self.store.exists() else {}
        self.store.write_text(json.dumps({name: part for name, part in (known | parts).items() if part is not None}))

    @property
    def runs(self) -> list[str]:
        path = self.store.with_name("runs")
        return path.read_text().splitlines() if path.exists() else []

    def session(self, slug: str, *arguments: str) -> McpSession:
        environment = {"ENGINE": str(self.store)}
        session = make_session(slug, command=str(self.program), arguments=["run", *arguments], environment=environment)
        commands.wake_owner(session.uid)
        return session


ENGINE = Path(__file__).parents[3] / "peers" / "engine.py"


def with_condition(session: McpSession, condition: SessionCondition) -> McpSession | None:
    return McpSession.objects.filter(pk=session.pk, condition=condition).first()


def offer_of(session: McpSession) -> PinnedPackage | None:
    return PinnedPackage.objects.filter(server=session.server, state=PinState.OFFERED).first()


def test_an_image_runs_by_its_digest_also_offline_and_a_moved_tag_is_offered(
    shared_worker: WorkerProcess, tmp_path: Path
) -> None:
    machine = Engine(tmp_path)
    session = machine.session("notes", "-i", "--rm", "-e", "KEY", "acme/notes", "--flag")
    await_ready(session)
    pin = PinnedPackage.objects.get(server=session.server)
    assert (pin.ecosystem, pin.name, pin.version, pin.integrity) == (Ecosystem.IMAGE, "acme/notes", "latest", ONE)
    assert machine.runs == [f"-i --rm -e KEY acme/notes@{ONE} --flag"]

    machine.put(registry={"acme/notes": TWO})
    PinnedPackage.objects.update(check_requested_at=session.state_since)
    offer = eventually(partial(offer_of, session), 20, "nothing was offered")
    assert (offer.version, offer.integrity) == ("latest", TWO)

    machine.put(registry=None)
    commands.reconnect(Actor(None, "ada"), session)
    eventually(lambda: len(machine.runs) == 2, 20, "it did not start again")
    assert machine.runs[1] == machine.runs[0]
    PinnedPackage.objects.filter(state=PinState.PINNED).update(check_requested_at=session.state_since)
    failed = eventually(
        lambda: PinnedPackage.objects.filter(server=session.server).exclude(check_problem="").first(), 20, "no failure"
    )
    assert "acme/notes could not be looked up in the container registry." in failed.check_problem
    assert "not pinned" not in failed.check_problem

    unknown = machine.session("other", "-i", "acme/other")
    waiting = eventually(partial(with_condition, unknown, SessionCondition.BACKING_OFF), 20, "it did not fail")
    assert waiting.fault == "package_unavailable"
    assert "could not be looked up in the container registry" in waiting.fault_detail


def test_versions_that_no_one_can_go_back_to_are_removed_from_the_disk(
    shared_worker: WorkerProcess, tmp_path: Path, admin_user: Any
) -> None:
    machine = Engine(tmp_path)
    session = machine.session("notes", "-i", "acme/notes")
    await_ready(session)
    for number, digest in enumerate((TWO, THREE), 2):
        machine.put(registry={"acme/notes": digest})
        PinnedPackage.objects.filter(state=PinState.PINNED).update(check_requested_at=session.state_since)
        offer = eventually(partial(offer_of, session), 20, "nothing was offered")
        pins.update(Actor.of_user(admin_user), admin_user, session.server, offer.integrity)
        eventually(lambda number=number: len(machine.runs) == number, 20, "it did not start again")  # type: ignore[misc]
    assert machine.runs[-1] == f"-i acme/notes@{THREE}"
    folder = Path(product.DATA_DIR) / "servers" / str(session.server.uid) / "packages"
    assert len([path for path in folder.glob("package-*") if path.is_dir()]) == 2
