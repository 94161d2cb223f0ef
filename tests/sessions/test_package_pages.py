"""The page of a server's package: what is pinned, what is offered, and who may decide."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from servers.audit import writer as writing
from servers.enums import Ecosystem, PinState
from servers.models import PinnedPackage, Server
from servers.packages import pins
from tests.servers.conftest import person
from tests.servers.packages.pinned import lock_of, pin_of, put
from tests.sessions.host.make import make_session

pytestmark = pytest.mark.django_db
TOOLS = {
    "added": ["search"],
    "removed": ["drop"],
    "changed": [
        {
            "name": "add",
            "change": "breaking",
            "reasons": ["b is now required"],
            "before": '{"name": "add"}',
            "after": '{"name": "add", "title": "Add"}',
        }
    ],
    "more_changed": 0,
    "same": 3,
    "known": True,
}


@pytest.fixture
def server() -> Server:
    return make_session("files", command="npx", arguments=["-y", "files"]).server


@pytest.fixture
def keeper(db: None) -> Any:
    yield person("kim", "view_server", "change_server", "manage_stdio")
    writing.reset()


def shown(user: Any, server: Server, tab: str = "package") -> str:
    client = Client()
    client.force_login(user)
    answer = client.get(f"/servers/{server.slug}/{tab}/")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def post(user: Any, server: Server, verb: str, **data: str) -> Any:
    client = Client()
    client.force_login(user)
    return client.post(f"/servers/{server.slug}/package/{verb}/", data)


def test_before_the_first_start_the_page_says_what_will_be_pinned(server: Server, keeper: Any) -> None:
    page = shown(keeper, server)
    assert "Not pinned yet" in page
    assert "The next start looks up the version in the npm registry" in page
    assert "If the working directory has this program" not in page
    Server.objects.filter(pk=server.pk).update(working_directory="/srv/files")
    assert "If the working directory has this program" in shown(keeper, server)
    assert "unless the working directory has this program." in shown(keeper, server, "info")


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("npx", ["github:acme/files"], "github:acme/files is not a package of a registry"),
        ("env", ["A=1", "npx", "files"], "npx is started by env"),
        ("python", ["server.py"], "not started by a launcher"),
    ],
)
def test_what_cannot_be_pinned_has_its_reason(command: str, arguments: list[str], words: str, keeper: Any) -> None:
    server = make_session("files", command=command, arguments=arguments).server
    page = shown(keeper, server)
    assert words in page
    assert "Check now" not in page


def test_name_version_hash_time_and_person_are_shown(server: Server, keeper: Any) -> None:
    put(server, PinState.PINNED, pinned_name="kim")
    page = shown(keeper, server)
    for words in ("1.2.3", "sha512-1.2.3", "by kim", "1 package, each pinned with its hash.", "Check now"):
        assert words in page
    assert "sha512-1.2.3" in shown(keeper, server, "info")


def test_packages_from_a_repository_are_not_said_to_be_pinned_with_a_hash(server: Server, keeper: Any) -> None:
    lock = json.loads(lock_of("1.2.3", helper="1.0.0", forked="1.0.0"))
    del lock["packages"]["node_modules/forked"]["integrity"]
    put(server, PinState.PINNED, pin_of(lock=json.dumps(lock), dependencies=2))
    assert "2 packages, each pinned with its hash except 1 from a repository." in shown(keeper, server)


def test_an_offer_shows_what_changes_and_each_tool_that_differs(server: Server, keeper: Any) -> None:
    put(server, PinState.PINNED)
    lock = lock_of("1.2.4", helper="2.0.0", more="1.0.0")
    put(server, PinState.OFFERED, pin_of("1.2.4", lock=lock), tools=TOOLS, compared_at=timezone.now())
    page = shown(keeper, server)
    for words in (
        *("Update available: 1.2.4", "1.2.3 → 1.2.4", "1 added, 0 removed, 1 with a different version"),
        *("1 added, 1 removed, 1 changed, 3 unchanged", "b is now required", "Update to 1.2.4"),
    ):
        assert words in page
    assert "Update available: 1.2.4" in shown(keeper, server, "tools")


def test_other_content_of_the_pinned_version_warns_in_the_head_and_offers_a_review(server: Server, keeper: Any) -> None:
    put(server, PinState.PINNED, changed_integrity="sha512-other", changed_name="files")
    assert "Review and pin again" in shown(keeper, server)
    put(server, PinState.OFFERED, pin_of("1.2.3", "sha512-other"))
    page = shown(keeper, server)
    assert "The registry now offers different content for files 1.2.3" in page
    assert "Pin the new content" in page
    assert "Update available" not in page
    assert "Package changed at the registry" in shown(keeper, server, "tools")


def test_a_changed_dependency_is_named(server: Server, keeper: Any) -> None:
    put(server, PinState.PINNED, changed_integrity="sha512-other", changed_name="helper")
    assert "different content for helper, which files 1.2.3 needs" in shown(keeper, server)


def test_who_may_not_register_commands_reads_and_finds_no_button(server: Server) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    user = person("vera", "view_server", "change_server")
    page = shown(user, server)
    assert "sha512-1.2.3" in page
    assert "permission to register commands." in page
    assert "package/update/" not in page
    assert post(user, server, "update", integrity="sha512-1.2.4").status_code == 403
    assert pins.of_server(server) == pin_of()


def test_the_buttons_update_and_go_back_and_an_outdated_page_changes_nothing(server: Server, keeper: Any) -> None:
    put(server, PinState.PINNED)
    put(server, PinState.OFFERED, pin_of("1.2.4"))
    assert post(keeper, server, "update", integrity="sha512-old").status_code == 302
    assert pins.of_server(server) == pin_of()
    post(keeper, server, "update", integrity="sha512-1.2.4")
    assert pins.of_server(server) == pin_of("1.2.4")
    assert "Roll back to 1.2.3" in shown(keeper, server)
    post(keeper, server, "back", integrity="sha512-1.2.3")
    assert pins.of_server(server) == pin_of()


def test_a_running_check_refreshes_the_page_and_a_lost_one_does_not(server: Server, keeper: Any) -> None:
    put(server, PinState.PINNED)
    post(keeper, server, "check")
    page = shown(keeper, server)
    assert "Checking…" in page
    assert 'hx-trigger="every 1s"' in page
    PinnedPackage.objects.update(check_requested_at=timezone.now() - timedelta(hours=1))
    assert "hx-trigger" not in shown(keeper, server)


def test_an_image_that_moved_is_an_update_and_no_alarm(keeper: Any) -> None:
    server = make_session("files", command="docker", arguments=["run", "-i", "acme/files"]).server
    image = {"ecosystem": Ecosystem.IMAGE, "requested": "acme/files", "name": "acme/files", "dependencies": 0}
    put(server, PinState.PINNED, pin_of("latest", "sha256:one", "x", **image))
    put(server, PinState.OFFERED, pin_of("latest", "sha256:two", "x", **image))
    page = shown(keeper, server)
    assert "Update available: latest" in page
    assert "different content" not in page
