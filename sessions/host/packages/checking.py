"""Compares a pin with its registry, and the tools of an offered version with the known ones, as requested in rows."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import structlog

from servers.audit.record import ServerRef
from servers.definitions.listing import read_listing
from servers.enums import DefinitionChange, DefinitionKind, Ecosystem, IdentityKind, PinState
from servers.models import Identity, Server
from servers.packages import checks, pins
from servers.packages.pins import Pin
from sessions import hints
from sessions.connections.commands import shared_session
from sessions.connections.lifecycle import storable, storable_json
from sessions.host.answer_redaction import Redactor
from sessions.host.authorization.stored_grants import authorized
from sessions.host.db import Database
from sessions.host.inbox import server_requests
from sessions.host.launch import Launch, load
from sessions.host.launch_problem import LaunchProblem
from sessions.host.opening import make_client
from sessions.host.packages import images, npm, pypi, start
from sessions.host.packages.problems import PackageUnavailable
from sessions.host.packages.programs import Programs
from sessions.host.packages.start import PackageStart
from sessions.mcp.core.errors import McpError
from sessions.mcp.core.events import Event
from sessions.mcp.transports.registry import StdioSpec

#: for the lists, on top of connecting
LIST_SECONDS = 30.0
CLOSE_SECONDS = 15.0
#: changed tools of which both versions are kept for the page, and how long each may be
MOST_TOOLS, MOST_CHARS, MOST_NAMES = 50, 20_000, 500
PROBLEM_CHARS = 1_000
log = structlog.get_logger(__name__)


async def run(db: Database, server_uid: UUID) -> None:
    """Handle one request for this server's package, unless another worker took it."""
    claimed = await db.write(partial(checks.claim, server_uid))
    if claimed is None:
        return
    what, server_id = claimed
    state = PinState.PINNED if what == checks.CHECK else PinState.OFFERED
    pin = await db.read(partial(checks.pinned, server_id, state))
    if pin is None:
        return
    redactor = Redactor()
    problem = ""
    result: dict[str, Any] = {}
    try:
        launch = await db.read(partial(_launch, server_id))
        redactor = Redactor(launch.secrets)
        package, spec = launch.package, launch.spec
        if package is None or not isinstance(spec, StdioSpec) or package.command.requested != pin.requested:
            problem = "The command of this server was changed, so it no longer runs this package."
        elif what == checks.CHECK:
            needed = await db.read(partial(checks.dependency_changed, server_id))
            result = await _compared_with_registry(package, spec, pin, dependency_changed=needed)
        else:
            result = {"tools": await _compared_tools(db, server_id, launch, package, spec, pin, redactor)}
    except Server.DoesNotExist:
        return  # deleted meanwhile
    except LaunchProblem as found:
        problem = found.failure.detail
    except PackageUnavailable as error:
        problem = error.failed
    except McpError as error:
        problem = error.detail
    except TimeoutError:
        problem = "It did not answer in time."
    except Exception as error:  # a bug of ours: the page says that the check failed, the log says why
        log.exception("host.package_check_failed", server=str(server_uid))
        problem = f"mcpadmin failed while checking this package ({type(error).__name__})."
    problem = storable(redactor.text(problem), PROBLEM_CHARS)
    if what == checks.CHECK:
        await _store_check(db, server_id, pin, problem, result)
    else:
        await db.persist(partial(checks.compared, server_id, pin, problem=problem, **result))
    hints.session_changed(server_uid)


async def _store_check(db: Database, server_id: int, pin: Pin, problem: str, result: dict[str, Any]) -> None:
    server = await db.read(Server.objects.filter(pk=server_id).first)
    if server is None:
        return  # deleted during the check
    same: Pin | None = result.get("same")

    def events(news: bool) -> list[Any]:
        of_server = ServerRef.of(server)
        return [pins.changed_event(of_server, pin, pin.name, same.integrity)] if news and same else []

    await db.persist(partial(checks.checked, server_id, pin, problem=problem, **result), events)


def _launch(server_id: int) -> Launch:
    """The launch with the values of the shared identity. Raises LaunchProblem."""
    return load(shared_session(Server.objects.get(pk=server_id)).pk)


# --- with the registry ---------------------------------------------------------------------------------------------------
async def _compared_with_registry(
    package: PackageStart, spec: StdioSpec, pin: Pin, *, dependency_changed: bool
) -> dict[str, Pin | None]:
    """`same`: the pinned version as the registry has it now. `offer`: what a first start would take now, if that is
    another version, or if a dependency changed. Runs nothing of any package."""
    programs = Programs(spec, lambda _line: None, package.seconds)
    async with start.scratch(package) as folder:
        if pin.ecosystem == Ecosystem.NPM:
            return await _npm(programs, package, pin, folder, resolved=dependency_changed)
        if pin.ecosystem == Ecosystem.PYPI:
            return await _pypi(programs, package, pin, folder, resolved=dependency_changed)
        found = await images.offered(programs, package.command, folder, pin)
        return {"offer": found if found.integrity != pin.integrity else None}


async def _npm(
    programs: Programs, package: PackageStart, pin: Pin, folder: Path, *, resolved: bool
) -> dict[str, Pin | None]:
    command = package.command
    version, integrity = await npm.newest(programs, command, folder)
    offer = await npm.resolve(programs, command, folder) if resolved or version != pin.version else None
    if offer is not None and offer.version == pin.version and not resolved:
        offer = None  # npm prefers the tag `latest` to a newer version within the range
    if version != pin.version:
        _, integrity = await npm.offered(programs, command, folder, f"{pin.name}@{pin.version}")
    same = replace(pin, integrity=integrity)
    if integrity != pin.integrity and offer is None:
        same = await npm.resolve(programs, command, folder, f"{pin.name}@{pin.version}")
    return {"same": same, "offer": offer}


async def _pypi(
    programs: Programs, package: PackageStart, pin: Pin, folder: Path, *, resolved: bool
) -> dict[str, Pin | None]:
    command = package.command
    found = await pypi.resolve(programs, command, folder)
    offer = found if resolved or found.version != pin.version else None
    same = (
        found
        if found.version == pin.version
        else await pypi.resolve(programs, command, folder, pypi.exactly(command, pin))
    )
    unchanged = pin.integrity in pypi.hashes_of(same)
    return {"same": pin if unchanged else same, "offer": offer}


# --- with the catalog ------------------------------------------------------------------------------------------------
async def _compared_tools(
    db: Database, server_id: int, launch: Launch, package: PackageStart, spec: StdioSpec, offer: Pin, redactor: Redactor
) -> dict[str, Any]:
    """Start the offered version separately, once, and compare the tools that it lists with the stored ones."""
    programs = Programs(spec, lambda _line: None, package.seconds)
    folder = await start.installed(db, programs, package, offer)
    aside = replace(launch, spec=start.run_by(package.command, spec, offer, folder), package=None)
    tools = redactor.value(await _listed(db, aside, redactor))
    found: dict[str, Any] = storable_json(await db.read(partial(_difference, server_id, tools)))
    return found


async def _listed(db: Database, launch: Launch, redactor: Redactor) -> list[dict[str, Any]]:
    answers = dict.fromkeys(server_requests.answered(launch), server_requests.refuse)
    client = make_client(authorized(launch, db, redactor), _ignore, answers)
    try:
        async with asyncio.timeout(launch.connect_seconds + LIST_SECONDS):
            await client.connect()
            return list((await client.list_tools()).items)
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()


def _ignore(event: Event) -> None:
    """Nothing is logged of a version that no one has accepted."""


def _difference(server_id: int, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The value for PinnedPackage.tools."""
    identity = Identity.objects.filter(server_id=server_id, kind=IdentityKind.SHARED).get()
    rows = identity.definitions.filter(kind=DefinitionKind.TOOL, removed_at=None)
    known = {row.key: row for row in rows}
    listing = read_listing(identity, DefinitionKind.TOOL, tools)
    changed = [
        {
            "name": key,
            "change": str(compatibility.change),
            "reasons": compatibility.reasons[:10],
            "before": known[key].body[:MOST_CHARS],
            "after": listing.items[key].body[:MOST_CHARS],
        }
        for key, (_, compatibility) in listing.checked.items()
        if key in known
    ]
    changed.sort(key=lambda one: one["change"] != DefinitionChange.BREAKING)
    return {
        "added": sorted(listing.items.keys() - known.keys())[:MOST_NAMES],
        "removed": sorted(known.keys() - listing.items.keys())[:MOST_NAMES],
        "changed": changed[:MOST_TOOLS],
        "more_changed": max(0, len(changed) - MOST_TOOLS),
        "same": len(known.keys() & listing.items.keys()) - len(changed),
        "known": bool(known),
    }
