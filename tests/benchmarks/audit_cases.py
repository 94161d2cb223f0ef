"""The cases of bench_audit on the database of the settings, which it fills first. Prints one line of JSON."""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import django
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import Resolver404, resolve

django.setup()

from mcpadmin import collector  # noqa: E402  # after the set-up
from mcpadmin.web.handler import call_with_room  # noqa: E402  # after the set-up
from servers.audit.record import SYSTEM, Event, record  # noqa: E402  # after the set-up
from servers.enums import AuditAction, AuditOutcome  # noqa: E402  # after the set-up
from sessions.explorer import language, search  # noqa: E402  # after the set-up
from sessions.explorer import statistics as explorer_statistics  # noqa: E402  # after the set-up
from sessions.models import Call  # noqa: E402  # after the set-up
from sessions.statistics import counting, reading  # noqa: E402  # after the set-up
from tests.benchmarks import audit_rows  # noqa: E402  # after the set-up
from tests.benchmarks.load import percentile  # noqa: E402  # after the set-up
from tests.sessions.explorer.rows import catch_up  # noqa: E402  # after the set-up
from tests.tools.url_routes import written_routes  # noqa: E402  # after the set-up

Case = Callable[[int], float]  # runs with the values of a round; returns the size in bytes
INDEXED = 300
EVERY_PAGE = "every page:"


def query(text: str) -> language.Query:
    return language.parse(text, datetime.now(UTC))


class Cases:
    def __init__(self) -> None:
        accounts = get_user_model()._default_manager
        accounts.filter(username="bench").delete()
        self.user = accounts.create_superuser("bench", password="x")
        self.client = Client()
        self.client.force_login(self.user)
        self.uids = list(Call.objects.order_by("-pk").values_list("uid", flat=True)[:10_000:97])

    def found(self, text: str) -> Case:
        def run(number: int) -> float:
            search.page(self.user, query(text.format(n=number, tool=number * 7 % audit_rows.TOOLS)))
            return 0

        return run

    def deep(self, number: int) -> float:
        last = Call.objects.order_by("-pk").values_list("pk", flat=True)[0]
        call = last // 2 - number * 101
        event = call * 5
        search.page(self.user, query(""), f"o.calls-{call}.events-{event}")
        return 0

    def page(self, path: str) -> Case:
        def run(number: int) -> float:
            response = self.client.get(path.format(n=number), secure=True, HTTP_HOST="localhost")
            if response.status_code != 200:
                raise RuntimeError(f"{path}: {response.status_code}")
            return len(response.content)

        return run

    def first(self, path: str) -> Case:
        """The cache of roll-ups is empty, as after a new minute has been counted."""

        def run(number: int) -> float:
            reading._read.cache_clear()
            return self.page(path)(number)

        return run

    def call_page(self, number: int) -> float:
        return self.page(f"/calls/{self.uids[number % len(self.uids)]}/")(number)

    def histogram(self, text: str) -> Case:
        def run(number: int) -> float:
            explorer_statistics.histogram(self.user, query(text.format(n=number)))
            return 0

        return run

    def facets(self, text: str) -> Case:
        def run(number: int) -> float:
            explorer_statistics.facets(self.user, query(text.format(n=number)))
            return 0

        return run

    def all(self) -> dict[str, Case]:
        yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
        rare, common, seldom, missing = audit_rows.RARE, audit_rows.COMMON, audit_rows.SELDOM, audit_rows.MISSING
        cases: dict[str, Case] = {
            "first page": self.found(""),
            "first page of calls": self.found("in:calls"),
            "deep page": self.deep,
            "server:": self.found("server:server-{n}"),
            "tool:": self.found("tool:tool_{tool}"),
            "tool: with *": self.found("tool:tool_{n}*"),
            "user:": self.found("user:person{n}"),
            "user: of no one": self.found("user:nobody{n}"),
            "identity:": self.found("identity:shared"),
            "way:task": self.found("way:task"),
            "outcome:error": self.found("outcome:error"),
            "outcome:unknown": self.found("outcome:unknown"),
            "kind:sign-in": self.found("kind:sign-in"),
            "duration:>2s": self.found("duration:>2s"),
            "size:>1mb": self.found("size:>1mb"),
            "an hour of yesterday": self.found(f"since:{yesterday}T15:00 until:{yesterday}T16:00"),
            "user: outcome: way:": self.found("user:person{n} outcome:error way:agent"),
            "server: outcome: duration:": self.found("server:server-{n} outcome:error duration:>1s"),
            "tool: way: duration:>20s": self.found("tool:tool_{tool} way:command duration:>20s"),
            "the question of the issue": self.found(
                f"since:{yesterday}T15:00 until:{yesterday}T16:00 outcome:error duration:>2s {seldom}"
            ),
            "rare word": self.found(rare),
            "seldom word": self.found(seldom),
            "common word": self.found(common),
            "missing word": self.found(missing),
            "two words": self.found(f"{common} {seldom}"),
            "common word, outcome:error": self.found(f"{common} outcome:error"),
            "beginning of a word": self.found("word12*"),
            "facets": self.facets("last:24h"),
            "facets of any time": self.facets(""),
            "facets of outcome:error": self.facets("outcome:error"),
            "facets of user:": self.facets("user:person{n}"),
            "histogram of 24 hours": self.histogram("last:24h"),
            "histogram of 30 days": self.histogram("last:30d"),
            "histogram of 30 days, outcome:error": self.histogram("last:30d outcome:error"),
            "histogram of 30 days, three conditions": self.histogram("last:30d user:person{n} outcome:error way:agent"),
            "page of a call": self.call_page,
            "overview": self.page("/"),
            "overview, first reader": self.first("/"),
            "overview, last hour": self.page("/?last=1h"),
            "servers": self.page("/servers/"),
            "servers, first reader": self.first("/servers/"),
            "servers, last page, as cards": self.page("/servers/?page=1000&view=cards"),
            "servers by state": self.page("/servers/?sort=state"),
            "servers by calls": self.page("/servers/?sort=-calls"),
            "servers by calls, first reader": self.first("/servers/?sort=-calls"),
            "servers with a word": self.page("/servers/?text=team-7"),
        }
        for name, path in (
            ("page: explorer", "/explorer/"),
            ("page: explorer, missing word", f"/explorer/?q={missing}"),
            ("page: explorer, 30 days", "/explorer/?q=last%3A30d"),
            ("page: charts", "/explorer/charts/"),
            ("page: audit", "/audit/"),
        ):
            try:
                resolve(path.partition("?")[0])
            except Resolver404:
                continue
            if path != "/audit/" or self.client.get(path, secure=True, HTTP_HOST="localhost").status_code == 200:
                cases[name] = self.page(path)
        cases["page: charts, first reader"] = self.first("/explorer/charts/")
        return cases | {f"{EVERY_PAGE} {path}": self.page(path) for path in self.every_page()}

    def every_page(self) -> Iterator[str]:
        """Those without a parameter, and those of one server with many tools."""
        slug, tool = audit_rows.many_tools()
        for route in written_routes():
            path = route.written.replace("<slug:slug>", slug)
            if "<" in path:
                continue
            answer = self.client.get(path, secure=True, HTTP_HOST="localhost")
            if answer.status_code == 200 and answer.headers["content-type"].startswith("text/html"):
                yield path
        yield f"/servers/{slug}/tools/?tool={tool}"


def timed(name: str, case: Case, rounds: int) -> dict[str, Any]:
    times, sizes, spent_cpu, statements = [], [], [], 0
    for number in range(rounds + 1):
        with CaptureQueriesContext(connection) if number == 0 else _nothing() as queries:
            began, cpu = time.perf_counter(), time.process_time()
            sizes.append(case(number))
            spent = (time.perf_counter() - began) * 1_000
        if number == 0:
            statements = len(queries)  # counting them costs time
        else:
            times.append(spent)
            spent_cpu.append((time.process_time() - cpu) * 1_000)
    times.sort()
    p50, p95 = statistics.median(times), percentile(times, 0.95)
    cpu = statistics.median(spent_cpu)
    return {"name": name, "p50": p50, "p95": p95, "cpu": cpu, "statements": statements, "kilobytes": max(sizes) / 1_000}


class _nothing:
    def __enter__(self) -> list[Any]:
        return []

    def __exit__(self, *_: object) -> None:
        pass


def index_cost() -> float:
    """Milliseconds of CPU in this process that the index costs a call: of copies of the newest calls."""
    catch_up()
    calls = list(Call.objects.order_by("-pk")[:INDEXED])
    for call in calls:
        call.pk, call.uid = None, uuid4()
    with transaction.atomic():
        Call.objects.bulk_create(reversed(calls))
        for call in calls:
            for action in (AuditAction.CALL_REQUEST, AuditAction.CALL_SEND, AuditAction.CALL_FINISH):
                record(Event(action, AuditOutcome.OK, SYSTEM, call_uid=call.uid))
    began = time.process_time()
    catch_up()
    return (time.process_time() - began) * 1_000 / len(calls)


def size() -> float:
    """Of the database, in GB."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        else:
            cursor.execute("SELECT pg_database_size(current_database())")
        return float(cursor.fetchone()[0]) / 1e9


def main(servers: int, calls: int, events: int, rounds: int, *only: str) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    call_command("migrate", interactive=False, verbosity=0)
    filled = {} if Call.objects.exists() else audit_rows.fill(servers, calls, events)
    counting.count_all()  # as a worker does each minute: an earlier run on kept databases left calls
    connection.close()  # with the settings of the product again
    collector.settle()  # as the web process does: with Python's own settings a collection of all objects takes 0.2 s
    found = []
    # As the web process calls its views: in a thread, with room for their frames.
    with ThreadPoolExecutor(1) as thread:
        for name, case in Cases().all().items() if rounds else ():
            if only and not any(word in name for word in only):
                continue
            found.append(thread.submit(call_with_room, timed, name, case, rounds).result())
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    index = index_cost() if rounds and not only else None
    print(json.dumps({"filled": filled, "size": size(), "cases": found, "index_ms": index}))


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:5]), *sys.argv[5:])
