"""Starts from a package that is installed, or that cannot be, without a worker."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from servers.configuration import Registration
from servers.packages import commands
from servers.packages.commands import PackageCommand
from sessions.host.db import Database
from sessions.host.packages import start
from sessions.host.packages.start import PackageStart
from sessions.mcp.core.errors import LaunchError
from sessions.mcp.transports.registry import StdioSpec
from sessions.mcp.transports.stdio.confinement import Confinement
from tests.servers.cast import over_stdio

NO_DATABASE = cast(Database, None)  # what no server has is pinned nowhere


def package(command: str, *arguments: str) -> PackageCommand:
    found = commands.read(command, arguments)
    assert found is not None
    return found


ENGINE = """#!/bin/sh
if [ -n "$WAITS" ]; then echo waiting >&2; exec sleep 1000; fi
[ "$1" = pull ] || echo '[{"Id": "sha256:1", "RepoDigests": ["notes@sha256:%s"]}]'
"""


async def test_an_installed_package_starts_while_others_wait_for_their_registry(tmp_path: Path) -> None:
    engine, waiting, all_wait = tmp_path / "docker", list[str](), asyncio.Event()
    engine.write_text(ENGINE % ("1" * 64))
    engine.chmod(0o755)
    command = package(str(engine), "run", "-i", "notes")

    def on_line(line: str) -> None:
        waiting.append(line)
        if len(waiting) == start.AT_ONCE:
            all_wait.set()

    def other(number: int) -> PackageStart:
        return PackageStart(command, tmp_path / f"other-{number}", 10)

    spec = StdioSpec(str(engine))
    away = replace(spec, env=lambda: {"WAITS": "1"})
    installed = PackageStart(command, tmp_path / "installed", 1_000)
    _, pin = await start.prepared(NO_DATABASE, installed, spec, print)
    others = [
        asyncio.ensure_future(start.prepared(NO_DATABASE, other(number), away, on_line))
        for number in range(start.AT_ONCE)
    ]
    try:
        await all_wait.wait()
        starting = asyncio.ensure_future(start.prepared(NO_DATABASE, replace(installed, pin=pin), spec, print))
        done, _ = await asyncio.wait({starting, *others}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {starting}
        assert (await starting)[1] == pin
    finally:
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("where the folder belongs")
    wanted = PackageStart(package("docker", "run", "notes"), tmp_path / "file" / "packages", 10)
    with pytest.raises(LaunchError, match=r"The folder of the package could not be written: Not a directory: .*/file"):
        await start.prepared(NO_DATABASE, wanted, StdioSpec("docker"), print)
    with pytest.raises(LaunchError, match="The folder of the package could not be written"):
        async with start.scratch(wanted):
            pass


async def test_a_lookup_removes_what_a_killed_worker_left_behind_and_waits_for_a_living_one(tmp_path: Path) -> None:
    wanted = PackageStart(package("docker", "run", "notes"), tmp_path / "packages", 10)
    abandoned = tmp_path / "packages" / "lookup-abandoned"
    (abandoned / "node_modules").mkdir(parents=True)

    async def looked_up() -> Path:
        async with start.scratch(wanted) as folder:
            return folder

    async with start.scratch(wanted) as first:
        assert first.is_dir()
        assert not abandoned.exists()
        other = asyncio.ensure_future(looked_up())
        assert not (await asyncio.wait({other}, timeout=0.2))[0]
        assert first.is_dir()
    assert await other != first
    assert not first.exists()


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["-y", "acme-mcp"], True),
        (["-p", "acme", "acme-mcp"], True),
        (["@acme/mcp"], True),
        (["acme-mcp@1.2.3"], False),
        (["acme-other"], False),
    ],
)
def test_a_program_of_the_project_itself_is_started_and_none_of_that_name_in_a_registry(
    arguments: list[str], found: bool, tmp_path: Path
) -> None:
    modules, work = tmp_path / "node_modules", tmp_path / "packages" / "one"
    for path in (modules / ".bin" / "acme-mcp", modules / "@acme" / "mcp" / "package.json", work / "index.js"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    source = over_stdio(arguments=arguments, working_directory=str(work))
    spec = StdioSpec("npx", tuple(arguments), cwd=str(work))

    def pinned(source: Registration, spec: StdioSpec) -> bool:
        return start.package_of(source, spec, tmp_path / "private", 10, None) is not None

    assert pinned(source, spec) is not found
    assert pinned(replace(source, working_directory=""), spec)
    yarn = ("dlx", *arguments)
    assert pinned(replace(source, command="yarn", arguments=list(yarn)), replace(spec, command="yarn", args=yarn))
    hidden = Confinement(home="/h", tmp="/t", mount_point="/m")
    assert pinned(source, replace(spec, confinement=hidden))
    assert pinned(source, replace(spec, confinement=replace(hidden, read=(str(tmp_path),)))) is not found
