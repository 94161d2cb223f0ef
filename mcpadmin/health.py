"""/healthz: this process serves. /readyz: everything that it needs is available; otherwise 503 with the missing
parts."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import redis
import structlog
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, JsonResponse

from sessions.models import Worker

log = structlog.get_logger("mcpadmin.health")

BUDGET_SECONDS = 1.0
# Checks that hang (a database that does not answer) occupy these threads and no more.
_threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="readyz")
_migrated = False


@login_not_required
async def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain", headers={"Cache-Control": "no-store"})


@login_not_required
async def readyz(request: HttpRequest) -> JsonResponse:
    names = list(CHECKS)
    verdicts = await asyncio.gather(*(_check(name) for name in names))
    parts = dict(zip(names, verdicts, strict=True))
    ready = all(verdict == "ok" for verdict in verdicts)
    headers = {"Cache-Control": "no-store"}
    return JsonResponse({"ready": ready, "parts": parts}, status=200 if ready else 503, headers=headers)


async def _check(name: str) -> str:
    """ "ok", "failed" or "timeout"; the reason goes to the log, never to the caller."""
    work = asyncio.get_running_loop().run_in_executor(_threads, _with_own_connection, CHECKS[name])
    try:
        return "ok" if await asyncio.wait_for(work, BUDGET_SECONDS) else "failed"
    except TimeoutError:
        return "timeout"
    except Exception as problem:  # any fault of a part is the answer here, not an error of this page
        log.warning("not ready", part=name, problem=type(problem).__name__, detail=str(problem))
        return "failed"


def _with_own_connection(check: Callable[[], bool]) -> bool:
    try:
        return check()
    finally:
        connections.close_all()


def _database_answers() -> bool:
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone() == (1,)


def _redis_answers() -> bool:
    url = settings.CACHES["default"]["LOCATION"]
    with redis.Redis.from_url(url, socket_timeout=BUDGET_SECONDS, socket_connect_timeout=BUDGET_SECONDS) as client:
        return bool(client.ping())


def _a_worker_is_alive() -> bool:
    """By the database's clock, which also sets the heartbeat."""
    oldest = Now() - timedelta(seconds=settings.STALE_SECONDS)
    return Worker.objects.filter(ended_at=None, heartbeat_at__gt=oldest).exists()


def _migrations_are_applied() -> bool:
    """Checked until it is true once: only a new release, hence a new process, brings new migrations."""
    global _migrated
    if not _migrated:
        executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
        _migrated = not executor.migration_plan(executor.loader.graph.leaf_nodes())
    return _migrated


CHECKS: dict[str, Callable[[], bool]] = {
    "database": _database_answers,
    "migrations": _migrations_are_applied,
    "redis": _redis_answers,
    "worker": _a_worker_is_alive,
}
PROBES = {"/healthz": healthz, "/readyz": readyz}
