"""*Test connection*: opens a sealed draft, runs the steps and closes everything again. Only the report is kept."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from servers.audit.record import Actor
from servers.audit.record import Event as AuditEvent
from servers.enums import AuditAction, AuditOutcome, DraftState
from servers.models import ServerDraft
from servers.registration.drafts import update_draft
from servers.signals import draft_changed
from servers.storable import storable, storable_json
from sessions.connections.lifecycle import Failure
from sessions.host import directories
from sessions.host.answer_redaction import Redactor, masked_words
from sessions.host.authorization.stored_grants import authorized
from sessions.host.cancelling import cancel_all
from sessions.host.db import Database, DatabaseAway
from sessions.host.inbox import server_requests
from sessions.host.launch import Launch, load_draft
from sessions.host.launch_problem import LaunchProblem
from sessions.host.opening import Diagnosis, make_client
from sessions.host.packages.start import prepared
from sessions.mcp.client import Client
from sessions.mcp.core.errors import Fault, McpError, TransportError
from sessions.mcp.core.events import DiagnosticLine, Event
from sessions.mcp.core.results import Connected, Listing, Step
from sessions.mcp.transports.registry import StdioSpec

#: for the lists, on top of connecting
EXTRA_SECONDS = 30.0
CLOSE_SECONDS = 15.0
DETAIL_CHARS = 4_000
Ask = Callable[[], Awaitable[Listing]]
log = structlog.get_logger(__name__)


def start(uid: UUID) -> bool:
    """Claim the test. True for one caller only, however often the test is requested."""
    waiting = ServerDraft.objects.filter(uid=uid, state=DraftState.REQUESTED, expires_at__gt=timezone.now())
    if not waiting.update(state=DraftState.RUNNING, version=F("version") + 1):
        return False
    transaction.on_commit(partial(draft_changed.send_robust, sender=ServerDraft, draft_uid=uid), robust=True)
    return True


def finish(uid: UUID, fields: dict[str, Any]) -> list[AuditEvent]:
    """The draft's last update, and the audit event with the result of the test."""
    if not update_draft(uid, **fields):
        return []
    draft = ServerDraft.objects.select_related("user").get(uid=uid)
    outcome = AuditOutcome.OK if fields["state"] == DraftState.SUCCEEDED else AuditOutcome.FAILED
    details = {"fault": fields["fault"]} if fields.get("fault") else {}
    actor = Actor.of_user(draft.user)
    return [AuditEvent(AuditAction.CONNECTION_TEST, outcome, actor, subject=str(draft.transport), details=details)]


class ConnectionTest:
    def __init__(self, db: Database, uid: UUID) -> None:
        self._db, self._uid = db, uid
        self._steps: dict[str, dict[str, Any]] = {}
        self._redactor = Redactor()
        self._diagnosis = Diagnosis(self._redactor)

    async def run(self) -> None:
        try:
            if not await self._db.write(partial(start, self._uid)):
                return
            await self._finish(await self._verdict())
        except asyncio.CancelledError:
            self._db.post(partial(update_draft, self._uid, state=DraftState.REQUESTED, steps=[]))  # for another worker
            raise
        except DatabaseAway as exc:
            log.warning("host.test_given_up", draft=str(self._uid), problem=str(exc)[:200])
        except ObjectDoesNotExist:  # or the draft itself, and then there is no end to record
            words = "The server or one of its credentials was deleted during the connection test."
            await self._finish(self._failed(Failure("deleted", words, step="resolve")))
        except Exception as exc:  # a bug of ours: the page waits for an end
            log.exception("host.test_failed", draft=str(self._uid))
            words = f"mcpadmin failed while testing this connection ({type(exc).__name__}). See its log for details."
            await self._finish(self._failed(Failure("internal_error", words, step="resolve")))

    async def _verdict(self) -> dict[str, Any]:
        """The final fields of the draft's row."""
        try:
            launch = await self._db.read(partial(load_draft, self._uid))
        except LaunchProblem as problem:
            return self._failed(problem.failure)
        try:
            return await self._verdict_of(launch)
        finally:
            with suppress(DatabaseAway):
                await self._db.read(partial(directories.remove_draft, self._uid))

    async def _verdict_of(self, launch: Launch) -> dict[str, Any]:
        self._redactor = Redactor(launch.secrets)
        self._diagnosis = Diagnosis(self._redactor, hints=launch.hints, launched=launch.package is None)
        try:
            return {"state": DraftState.SUCCEEDED, "report": await self._tried(launch)}
        except McpError as error:
            return self._failed(self._diagnosis.failure(error))

    async def _tried(self, launch: Launch) -> dict[str, Any]:
        launch = await self._with_package(launch)
        answers = dict.fromkeys(server_requests.answered(launch), server_requests.refuse)
        client = make_client(authorized(launch, self._db, self._redactor), self._on_event, answers)
        seconds = launch.connect_seconds + EXTRA_SECONDS
        shown = asyncio.create_task(self._diagnosis.show_start(self._show_start)) if launch.is_child else None
        try:
            async with asyncio.timeout(seconds):
                connected = await client.connect(self._on_step)
                await cancel_all(shown)
                return _report(connected, self._redactor, await self._listed(client))
        except TimeoutError as exc:
            words = f"The test did not finish within {seconds:.0f} s."
            raise TransportError(Fault.TIMEOUT, words, may_have_run=False) from exc
        finally:
            await cancel_all(shown)
            await self._closed(client)

    async def _with_package(self, launch: Launch) -> Launch:
        """Install the package that a launcher would fetch. It is a separate step, and the longest."""
        if launch.package is None or not isinstance(launch.spec, StdioSpec):
            return launch
        began = self._now()
        self._note("package", "started")
        shown = asyncio.create_task(self._diagnosis.show_start(self._show_start))
        try:
            async with asyncio.timeout(launch.connect_seconds):
                spec, pin = await prepared(self._db, launch.package, launch.spec, self._on_line)
        except TimeoutError as exc:
            words = f"The package was not installed within {launch.connect_seconds:.0f} s."
            raise TransportError(Fault.TIMEOUT, words, may_have_run=False) from exc
        finally:
            await cancel_all(shown)
        self._note("package", "finished", self._now() - began, f"{pin.name} {pin.version}, {pin.integrity}")
        return replace(launch, spec=spec, package=None)

    def _on_line(self, line: str) -> None:
        self._on_event(DiagnosticLine("stderr", line))

    async def _closed(self, client: Client) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()
        except TimeoutError:
            log.warning("host.test_close_timeout", draft=str(self._uid))

    async def _listed(self, client: Client) -> dict[str, Any]:
        """How many definitions the server offers, by kind."""
        began = self._now()
        self._note("list", "started")
        kinds: dict[str, Ask] = {
            "tools": client.list_tools,
            "resources": client.list_resources,
            "prompts": client.list_prompts,
        }
        counts: dict[str, Any] = {name: len((await ask()).items) for name, ask in kinds.items()}
        words = ", ".join(f"{count} {name.removesuffix('s') if count == 1 else name}" for name, count in counts.items())
        self._note("list", "finished", self._now() - began, words)
        return counts

    # --- steps -------------------------------------------------------------------------------------------------------
    def _on_step(self, step: Step) -> None:
        self._note(step.name, step.status, step.seconds, step.detail)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, DiagnosticLine):
            self._diagnosis.on_event(event)

    def _show_start(self, tail: str, hints: Sequence[str]) -> None:
        """Show the child's stderr and the hints while a process has not answered yet."""
        step = self._steps.get(self._diagnosis.step)
        if step is not None and step["state"] == "started":
            step["hints"] = list(hints)
            fields = {"steps": list(self._steps.values()), "stderr_tail": storable(tail, 8_000)}
            self._db.post(partial(update_draft, self._uid, **fields))

    def _note(self, name: str, state: str, seconds: float | None = None, detail: str = "") -> None:
        self._diagnosis.step = name
        words = storable(masked_words(detail, self._redactor), DETAIL_CHARS)
        self._steps[name] = {"name": name, "state": state, "seconds": seconds, "detail": words}
        if state == "started":
            self._steps[name]["since"] = timezone.now().isoformat()
        self._db.post(partial(update_draft, self._uid, steps=list(self._steps.values())))

    def _failed(self, failure: Failure) -> dict[str, Any]:
        step = self._steps.get(self._diagnosis.step or failure.step)
        detail = storable(failure.detail, DETAIL_CHARS)
        if step is not None and step["state"] == "started":
            step |= {"state": "failed", "detail": detail}
        return {
            "state": DraftState.FAILED,
            "fault": str(failure.fault),
            "detail": detail,
            "stderr_tail": storable(failure.stderr_tail, 8_000),
        }

    async def _finish(self, fields: dict[str, Any]) -> None:
        await self._db.persist(partial(finish, self._uid, fields | {"steps": list(self._steps.values())}), list)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _report(connected: Connected, redactor: Redactor, counts: dict[str, Any]) -> dict[str, Any]:
    found = {
        "server_info": connected.server_info,
        "revision": connected.revision,
        "era": str(connected.era),
        "transport": connected.transport,
        "decided_by": connected.decided_by,
        "instructions": connected.instructions,
    }
    report: dict[str, Any] = storable_json(redactor.value(found))
    return report | counts
