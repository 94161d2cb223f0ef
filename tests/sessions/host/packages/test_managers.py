"""Package managers and engines as starts and checks run them, without a worker."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers.enums import Ecosystem
from servers.packages import commands, locks
from servers.packages.commands import PackageCommand
from servers.packages.pins import Pin
from sessions.host.packages import npm, pypi
from sessions.host.packages.problems import PackageUnavailable
from sessions.host.packages.programs import LINES, Output, Programs
from sessions.mcp.core.errors import Fault, LaunchError
from sessions.mcp.transports.registry import StdioSpec
from tests.peers.registries import Registries, Release

UVX = str(Path(sys.executable).with_name("uvx"))


@pytest.fixture
def registries() -> Iterator[Registries]:
    opened = Registries()
    yield opened
    opened.close()


def package(command: str, *arguments: str) -> PackageCommand:
    found = commands.read(command, arguments)
    assert found is not None
    return found


def programs(registries: Registries, folder: Path, command: str) -> Programs:
    variables = {
        "npm_config_registry": f"{registries.url}/npm/",
        "npm_config_cache": str(folder / "npm"),
        "npm_config_userconfig": "/dev/null",
        "UV_INDEX_URL": f"{registries.url}/simple/",
        "UV_CACHE_DIR": str(folder / "uv"),
        "UV_NO_CONFIG": "1",
    }
    return Programs(StdioSpec(command, env=lambda: variables), lambda _line: None, 120)


# --- PyPI ----------------------------------------------------------------------------------------------------------------
async def test_a_pin_that_an_import_brought_is_completed_with_the_extras_that_the_command_names(
    registries: Registries, tmp_path: Path
) -> None:
    registries.publish_helper("1.0.0", "helped")
    release = Release({"notes.py": b"def main(): pass"}, {"helper": ">=1 ; extra == 'web'\nProvides-Extra: web"}, True)
    registries.pypi["notes"] = {"1.2.3": release.wheel("notes", "1.2.3")}
    command = package(UVX, "--from", "notes[web]>=1", "notes")
    pin = Pin(Ecosystem.PYPI, command.requested, "notes", "1.2.3", registries.pypi_hash("notes", "1.2.3"))
    (tmp_path / "package-1").mkdir()
    done = await pypi.install(programs(registries, tmp_path, UVX), command, pin, tmp_path / "package-1")
    assert {one.name for one in locks.locked(Ecosystem.PYPI, done.lock)} == {"notes", "helper"}
    assert done.dependencies == 1


def test_a_build_that_prints_like_a_changed_package_does_not_hold_the_worker_up() -> None:
    command = package("uvx", "notes")
    lines = ["Hash mismatch for `notes`" * 80, "Hash mismatch for `notes" + "x" * 1_900]
    with pytest.raises(LaunchError) as failed:
        pypi._require(Output(1, [], lines * (LINES // 2)), command, None, "")
    assert failed.value.fault is Fault.PACKAGE_FAILED


@pytest.mark.parametrize(
    "line",
    [
        "refused to connect to 10.0.0.8:443: it is not a public internet address",
        "refused to look up mirror.corp: it is not listed",
    ],
)
@pytest.mark.parametrize("manager", ["npm", "uv"])
def test_a_registry_that_the_confinement_keeps_away_is_one_that_cannot_be_reached(manager: str, line: str) -> None:
    output = Output(
        1,
        [],
        [f"[mcpadmin] {line}", "npm error code EACCES", "npm error     at emitErrorEvent (node:_http_client:104:11)"],
    )
    require, name = (npm._require, "npx") if manager == "npm" else (pypi._require, "uvx")
    with pytest.raises(PackageUnavailable) as failed:
        require(output, package(name, "notes"), None, "")
    assert line in failed.value.detail
    assert "emitErrorEvent" not in failed.value.detail


# --- npm -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [
        lambda packages: packages | {"other": "x"},
        lambda packages: packages | {"node_modules/notes": "x"},
        lambda packages: packages | {"node_modules/notes": {"version": "1" * 201, "integrity": "sha512-1"}},
        lambda packages: [*packages],
        lambda packages: None,
    ],
)
def test_a_lock_file_that_code_of_the_package_rewrote_is_refused_in_words(change: Any) -> None:
    packages = {"": {}, "node_modules/notes": {"version": "1.2.3", "integrity": "sha512-1"}}
    assert npm._pin(package("npx", "notes"), json.dumps({"packages": packages})).version == "1.2.3"
    for text in (json.dumps({"packages": change(packages)}), json.dumps([]), "[" * 200_000):
        with pytest.raises(
            LaunchError, match=r"The information that package-lock\.json gives about notes cannot be read"
        ):
            npm._pin(package("npx", "notes"), text)


@pytest.mark.parametrize("about", [{"bin": {"x": {}, "y": []}}, {"bin": [{}]}, [], {"bin": 7}, "[" * 200_000])
def test_a_package_that_says_odd_things_of_its_programs_is_refused_in_words(about: Any, tmp_path: Path) -> None:
    place = tmp_path / "node_modules" / "notes"
    place.mkdir(parents=True)
    (place / "package.json").write_text(about if isinstance(about, str) else json.dumps(about))
    with pytest.raises(
        LaunchError, match=r"has no program with the same name as the package|was not installed completely"
    ):
        npm.program(package("npx", "notes"), tmp_path)
