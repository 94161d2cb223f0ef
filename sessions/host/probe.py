"""*Test connection*: opens a sealed draft, walks the steps and closes everything again. Nothing is kept but the report."""

import asyncio
from collections.abc import Awaitable, Callable
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
from servers.domain.drafts import update_draft
from servers.enums import AuditAction, AuditOutcome, DraftState
from servers.models import ServerDraft
from servers.signals import draft_changed
from sessions.client import Client
from sessions.domain.lifecycle import Failure, storable, storable_json
from sessions.host.authorization import authorized
from sessions.host.db import Database, DatabaseAway
from sessions.host.launch import Launch, LaunchProblem, load_draft
from sessions.host.opening import Diagnosis, make_client
from sessions.host.redaction import Redactor
from sessions.protocol.errors import Fault, McpError, TransportError
from sessions.protocol.events import DiagnosticLine, Event
from sessions.protocol.results import Connected, Listing, Step

#: on top of the draft's own connect time-out
EXTRA_SECONDS = 30.0
CLOSE_SECONDS = 15.0
DETAIL_CHARS = 2_000
Ask = Callable[[], Awaitable[Listing]]
log = structlog.get_logger(__name__)


def start(uid: UUID) -> bool:
    """One test a draft, however often it is asked for."""
    waiting = ServerDraft.objects.filter(uid=uid, state=DraftState.REQUESTED, expires_at__gt=timezone.now())
    if not waiting.update(state=DraftState.RUNNING, version=F("version") + 1):
        return False
    transaction.on_commit(partial(draft_changed.send_robust, sender=ServerDraft, draft_uid=uid), robust=True)
    return True


def finish(uid: UUID, fields: dict[str, Any]) -> list[AuditEvent]:
    """The draft's last change, and the event that says how the test ended."""
    if not update_draft(uid, **fields):
        return []
    draft = ServerDraft.objects.select_related("user").get(uid=uid)
    outcome = AuditOutcome.OK if fields["state"] == DraftState.SUCCEEDED else AuditOutcome.FAILED
    details = {"fault": fields["fault"]} if fields.get("fault") else {}
    actor = Actor.of_user(draft.user)
    return [AuditEvent(AuditAction.CONNECTION_TEST, outcome, actor, subject=str(draft.transport), details=details)]


class Probe:
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
        except (DatabaseAway, ObjectDoesNotExist) as exc:
            log.warning("host.test_given_up", draft=str(self._uid), problem=str(exc)[:200])

    async def _verdict(self) -> dict[str, Any]:
        """The final fields of the draft's row."""
        try:
            launch = await self._db.read(partial(load_draft, self._uid))
        except LaunchProblem as problem:
            return self._failed(problem.failure)
        self._redactor = Redactor(launch.secrets)
        self._diagnosis = Diagnosis(self._redactor)
        try:
            return {"state": DraftState.SUCCEEDED, "report": await self._tried(launch)}
        except McpError as error:
            return self._failed(self._diagnosis.failure(error))

    async def _tried(self, launch: Launch) -> dict[str, Any]:
        client = make_client(authorized(launch, self._db, self._redactor), self._on_event)
        seconds = launch.timeouts.connect + EXTRA_SECONDS
        try:
            async with asyncio.timeout(seconds):
                connected = await client.connect(self._on_step)
                return _report(connected, self._redactor, await self._listed(client))
        except TimeoutError as exc:
            words = f"The test was not over after {seconds:.0f} s."
            raise TransportError(Fault.TIMEOUT, words, may_have_run=False) from exc
        finally:
            await self._closed(client)

    async def _closed(self, client: Client) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close()
        except TimeoutError:
            log.warning("host.test_close_timeout", draft=str(self._uid))

    async def _listed(self, client: Client) -> dict[str, Any]:
        """How much the server offers, by kind."""
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
            self._diagnosis.hear(event)

    def _note(self, name: str, state: str, seconds: float | None = None, detail: str = "") -> None:
        self._diagnosis.step = name
        words = storable(self._redactor.text(detail), DETAIL_CHARS)
        self._steps[name] = {"name": name, "state": state, "seconds": seconds, "detail": words}
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
    told = {
        "server_info": connected.server_info,
        "revision": connected.revision,
        "era": str(connected.era),
        "transport": connected.transport,
        "decided_by": connected.decided_by,
        "instructions": connected.instructions,
    }
    report: dict[str, Any] = storable_json(redactor.value(told))
    return report | counts
