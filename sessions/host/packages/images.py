"""Container images. Their digest is the hash of their content, so the engine itself cannot run anything else under
it."""

import json
import re
from pathlib import Path

from servers.packages.commands import PackageCommand, image_parts
from servers.packages.pins import LOCAL_IMAGE, Pin
from sessions.host.packages.problems import failed, unavailable
from sessions.host.packages.programs import Output, Programs

_AWAY = re.compile(
    r"no such host|dial tcp|connection refused|timeout|i/o|network is unreachable|TLS|unauthorized|denied|lookup",
    re.IGNORECASE,
)
_NO_ENGINE = re.compile(r"daemon running|Cannot connect to (?:the Docker daemon|Podman)", re.IGNORECASE)


async def install(programs: Programs, command: PackageCommand, pin: Pin | None, folder: Path) -> Pin:
    if pin is None:
        return await resolve(programs, command, folder)
    if await _digests(programs, command, folder, reference(pin)) is None:
        _require(await _pull(programs, command, folder, reference(pin)), command, pin)
    return pin


async def resolve(programs: Programs, command: PackageCommand, folder: Path) -> Pin:
    """Fetch the image, which runs nothing of it. If the registry is unreachable, an image that is already here
    counts."""
    return await _found(programs, command, folder, await _pull(programs, command, folder, command.requirements[0]))


async def offered(programs: Programs, command: PackageCommand, folder: Path, pin: Pin) -> Pin:
    """What the registry has now. An image that was built here is in no registry."""
    output = await _pull(programs, command, folder, command.requirements[0])
    if pin.is_portable:
        _require(output, command, None)
    return await _found(programs, command, folder, output)


async def _found(programs: Programs, command: PackageCommand, folder: Path, output: Output) -> Pin:
    asked = command.requirements[0]
    found = await _digests(programs, command, folder, asked)
    if found is None:
        _require(output, command, None)
        raise failed(f"{asked} was fetched, but the engine cannot find it.")
    repositories, own = found
    name, tag = image_parts(asked)
    digest = next((one.partition("@")[2] for one in repositories if _same(one.partition("@")[0], name)), "")
    return Pin(command.ecosystem, command.requested, name, tag, digest or own, "" if digest else LOCAL_IMAGE)


def reference(pin: Pin) -> str:
    """How to name the image: by its digest, or by its id if it was built here and has no digest."""
    return f"{pin.name}@{pin.integrity}" if pin.is_portable else pin.integrity


async def _pull(programs: Programs, command: PackageCommand, folder: Path, image: str) -> Output:
    return await _engine(programs, folder, "pull", *command.options, image)


async def _digests(
    programs: Programs, command: PackageCommand, folder: Path, image: str
) -> tuple[list[str], str] | None:
    """(repository@digest of each registry, the image's own id); None if the image is not here."""
    output = await _engine(programs, folder, "image", "inspect", image)
    if output.code != 0:
        if _NO_ENGINE.search(output.text):
            raise failed(f"{_program(command)} cannot reach its engine.", output.text)
        return None
    try:
        [found, *_] = json.loads("\n".join(output.stdout))
        return list(found.get("RepoDigests") or []), str(found["Id"])
    except (ValueError, KeyError, TypeError):
        raise failed(f"The output of {_program(command)} about {image} cannot be read.") from None


async def _engine(programs: Programs, folder: Path, *arguments: str) -> Output:
    return await programs.run(programs.spec.command, *arguments, folder=folder)


def _program(command: PackageCommand) -> str:
    return command.launcher.split()[0]


def _same(one: str, other: str) -> bool:
    """`time` is short for `docker.io/library/time`."""
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def _require(output: Output, command: PackageCommand, pin: Pin | None) -> None:
    if output.code == 0:
        return
    if _NO_ENGINE.search(output.text):
        raise failed(f"{_program(command)} cannot reach its engine.", output.text)
    if _AWAY.search(output.text):
        raise unavailable(command, pin, "", output.text)
    raise failed(f"{_program(command)} pull ended with exit code {output.code}.", output.text)
