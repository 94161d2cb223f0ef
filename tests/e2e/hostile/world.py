"""A product full of hostile texts, and the paths of all its pages and downloads, derived from the URLconf."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode
from uuid import UUID

from tests.canary.careless import SCENARIOS, Careless
from tests.e2e.hostile import corpus, rows, scripted
from tests.e2e.sockets import Visitor
from tests.screenshots import world as pictured
from tests.screenshots.asked import SEED
from tests.screenshots.asking import SEED as ASKING
from tests.screenshots.pages import CONSENT
from tests.screenshots.subscriptions import with_a_past
from tests.tools.stack import ADMIN, Stack
from tests.tools.url_routes import Written, written_routes

LIVE, WORK = "live", "work"
SCRIPT = Path(__file__).with_name("scripted.py")
#: these respond without a page: endpoints for programs, and redirects
NO_PAGES = {"oauth:token", "oauth:revoke", "oauth:register", "browser_reports:receive", "setup", "servers:sign_in_go"}
#: where the value of a parameter comes from: the column of a table, by the beginning of the route's name
TABLES = {
    "servers:test_progress": "servers_serverdraft",
    "servers:sign_in": "servers_signin",
    "calls:": "mcp_sessions_call",
    "saved_calls:": "mcp_sessions_savedcall",
    "agents:": "servers_agenttoken",
    "inbox:approv": "mcp_sessions_approval",
    "inbox:refuse": "mcp_sessions_approval",
    "inbox:": "mcp_sessions_question",
    "subscriptions:": "mcp_sessions_subscription",
    "credentials:": "servers_credential",
    "privacy:": "servers_redactionrule",
    "exports:download": "servers_export",
    "exports:delete": "servers_export",
    "exports:sink": "servers_sink",
    "exports:delete_sink": "servers_sink",
    "exports:": "servers_exportschedule",
    "explorer:": "mcp_sessions_savedview",
    "oauth:": "servers_oauthclient",
}
#: names of all parameters that a page reads from its query, for texts that it reflects
QUERIES = (
    *("q", "text", "find", "sort", "order", "cols", "by", "last", "before", "show", "view", "kind", "method", "tool", "prompt"),
    *("uri", "template", "key", "server", "target", "path", "query", "part", "at", "into", "entry", "client", "token", "source"),
    *("level", "state", "name", "sel", "tz", "page", "next", "arg.x"),
)  # fmt: skip


#: of each of these a result has many, of different types; each in two ways
FILES, CONTENTS = {"calls:content", "subscriptions:content"}, 20


@dataclass
class World:
    stack: Stack
    visitor: Visitor
    #: rows of each field that rows.py wrote
    written: dict[str, int] = field(default_factory=dict)
    import_preview: str = ""
    live_calls: list[str] = field(default_factory=list)

    def column(self, sql: str, *parameters: object) -> list[str]:
        return [str(next(iter(dict(row).values()))) for row in self.stack.rows(sql, *parameters)]

    def uids(self, table: str) -> list[str]:
        return [str(UUID(text)) for text in self.column(f"SELECT uid FROM {table} ORDER BY id")]  # noqa: S608  # names of our own tables

    # --- paths -------------------------------------------------------------------------------------------------------
    def paths(self, most: int) -> dict[str, list[str]]:
        """By route, at most that many of each."""
        return {
            route.name: list(self._filled(route))[: most * (CONTENTS if route.name in FILES else 1)]
            for route in written_routes()
            if route.name not in NO_PAGES
        }

    def _filled(self, route: Written) -> Iterator[str]:
        found = [route.written]
        for place, values in self._values(route).items():
            found = (
                [path.replace(place, value) for path in found for value in values] if place in route.written else found
            )
        assert not any("<" in path for path in found), f"add a value for the parameters of {route.written} in world.py"
        for path in found:
            yield from (path + query for query in self._queries(route.name, path))

    def _values(self, route: Written) -> dict[str, list[str]]:
        table = next((table for start, table in TABLES.items() if route.name.startswith(start)), "")
        if route.name == "servers:import_preview":
            uids = [self.import_preview]
        elif route.name in ("agents:bundle_policy", "agents:restore_bundle") or not table:
            uids = [str(UUID(int=1))]
        else:
            uids = self.uids(table) if table != "mcp_sessions_call" else self._calls()
        bundle = route.name.startswith("agents:")
        return {
            "<slug:slug>": ["team-tools"] if bundle else [LIVE, WORK],
            "<uuid:uid>": uids,
            "<uuid:other>": uids[:1],
            "<slug:kind>": ["tool", "resource", "prompt"],
            "<slug:part>": ["structured"],
            "<slug:alias>": ["work"],
            "<int:position>": [str(number) for number in range(10)],
            "<int:number>": [str(number) for number in range(1, 6)],
            "<int:user_id>": self.column("SELECT id FROM auth_user ORDER BY id DESC"),
            "<int:group_id>": self.column("SELECT id FROM auth_group ORDER BY id DESC"),
            "<int:seq>": self._sequence(route),
            "<str:stream>/<int:key>": self._explorer_rows(),
            "<slug:digest>": self.column("SELECT digest FROM servers_icon"),
            "<str:digest>": self.column("SELECT digest FROM servers_payload ORDER BY id DESC LIMIT 3"),
            "<str:key>": ["registration"],
            "<str:token>": [quote(corpus.text(scripted.field("search.query"), 0), safe="")],
        }

    def _calls(self) -> list[str]:
        """Those with most contents first."""
        sql = "SELECT uid FROM mcp_sessions_call ORDER BY state = 'succeeded' AND method = 'tools/call' DESC, id DESC"
        return [str(UUID(text)) for text in self.column(sql)]

    def _sequence(self, route: Written) -> list[str]:
        table = "servers_auditevent" if route.name.startswith("audit:") else "mcp_sessions_wiremessage"
        return self.column(f"SELECT DISTINCT seq FROM {table} ORDER BY seq DESC")  # noqa: S608  # names of our own tables

    def _explorer_rows(self) -> list[str]:
        tables = {"calls": "call", "logs": "logline", "messages": "wiremessage"}
        found = [
            f"{stream}/{key}"
            for stream, table in tables.items()
            for key in self.column(f"SELECT id FROM mcp_sessions_{table} ORDER BY id DESC LIMIT 5")  # noqa: S608  # names of our own tables
        ]
        return found + [
            f"events/{key}" for key in self.column("SELECT seq FROM servers_auditevent ORDER BY seq DESC LIMIT 20")
        ]

    def _queries(self, name: str, path: str) -> list[str]:
        """What chooses the contents of a page."""
        live = f"/{LIVE}/" in path
        keys = {
            "servers:tools": ("tool", "tool"), "servers:tool_form": ("tool", "tool"), "servers:prompts": ("prompt", "prompt"),
            "servers:resources": ("uri", "resource"), "servers:definition": ("key", path.rstrip("/").rpartition("/")[2]),
        }  # fmt: skip
        if name in keys:
            query, kind = keys[name]
            found = self._keys(kind) if live else ["greet"]
            more = [f"?{urlencode({query: key})}" for key in found]
            if name == "servers:resources" and live:
                more += [f"?{urlencode({'template': key, 'arg.x': key})}" for key in self._keys("resource_template")]
            return more if name in ("servers:definition", "servers:tool_form") else ["", *more]
        search = quote(corpus.text(scripted.field("search.query"), len(path)))
        return {
            "palette": [f"?q={word}" for word in ("hit", "x", "a", "<", search)],
            "explorer:page": ["", "?q=in:calls,events,logs,messages&cols=preview,identity,way,size", f"?q={search}",
                              "?q=last:24h+in:events&sel=events.2"],
            "explorer:rows": ["?q=in:calls,events,logs,messages&cols=preview,identity,way,size"],
            "explorer:complete": ["?q=tool:", "?q=server:", "?q=user:", "?q=subject:"],
            "explorer:charts": ["", "?by=tool", "?by=user", "?by=server"],
            "agents:bundle_tool": ["?tool=greet"],
            "oauth:authorize": [f"?{CONSENT.partition('?')[2]}&client_id=pictured", f"?client_id={search}&redirect_uri={search}"],
            "subscriptions:detail": ["", "?version=3&against=1", "?view=content", "?version=1", "?version=5"],
            "subscriptions:content": ["", "?item=0", "?item=1", "?item=2"],
            "servers:list": ["", "?view=cards", "?sort=state", f"?text={search}"],
            "calls:content": ["", "?open"],
            "calls:use": ["", f"?server={WORK}&tool=greet&open"],
            "calls:part": ["?at="],
            "credentials:add": [f"?kind={kind}" for kind in ("bearer", "oauth", "certificate", "workload", "service_account")],
            "exports:add": [f"?query={search}"],
            "exports:add_schedule": ["?target=s3", "?target=directory"],
            "privacy:add_rule": ["", f"?path={search}"],
            "servers:add": ["", f"?template={search}"],
            "servers:logs": ["", f"?text={search}"],
            "servers:protocol": ["", "?show=all", f"?text={search}"],
            "servers:history": ["", "?method=all"],
        }.get(name, [""])  # fmt: skip

    def _keys(self, kind: str) -> list[str]:
        sql = """SELECT d.key FROM servers_definition d JOIN servers_identity i ON i.id = d.identity_id
            JOIN servers_server s ON s.id = i.server_id WHERE s.slug = ? AND d.kind = ? ORDER BY d.id"""
        return self.column(sql, LIVE, kind)


# --- filling ---------------------------------------------------------------------------------------------------------
_REGISTER = """
from django.core.management import call_command
for words in {}: call_command(*words)
from tests.e2e.hostile import seeding
seeding.base()
"""
_MORE = "from tests.e2e.hostile import seeding\nseeding.more({rows})"
_POISON = "import json\nfrom tests.e2e.hostile import rows\nprint('WRITTEN', json.dumps(rows.poison('live')))"


def fill(world: World, careless: Careless | None, count: int) -> None:
    """`count`: rows of each kind. `careless`: HTTP servers that fail, and say what they were sent."""
    stack = world.stack
    register = ("register_server", f"--user={ADMIN[0]}")
    live = (
        *register,
        "--name=Live",
        "--era=legacy",
        f"--read={SCRIPT.parent}",
        "--",
        sys.executable,
        str(SCRIPT),
        str(count),
    )
    orders = [live] if careless is None else [live, *_failing(careless, register)]
    stack.shell(_REGISTER.format(orders))
    admin = {"admin": ADMIN[0], "slug": WORK}
    enabled = f"Server.objects.filter(slug={WORK!r}).update(enabled={{}})"
    first = world.uids("mcp_sessions_call")[0]
    seeds = (
        *(pictured.PACKAGES, pictured.KEEPING, pictured.CREDENTIALS.format(admin=ADMIN[0], slug="old-sockets")),
        pictured.AGENTS.format(**admin),
        *(enabled.format(True), ASKING % admin, enabled.format(False)),  # for as long as calls are placed
        *(pictured.PEOPLE.format(password=ADMIN[1], **admin), SEED % {"call": first}, _MORE.format(rows=count)),
    )
    stack.shell("\n".join(seeds))
    with_a_past(stack, "old-sockets")
    _export(world)
    stack.shell(pictured.JOBS + pictured.EXPORTS.format(**admin) + "\nfiles.path_of(ready).unlink()")
    _import(world)
    _call_everything(world, count)
    printed = stack.shell(_POISON)
    world.written = json.loads(printed.split("WRITTEN ", 1)[1])


def _failing(careless: Careless, register: tuple[str, ...]) -> list[tuple[str, ...]]:
    ascii_texts = [
        at
        for at, (_, words) in enumerate(corpus.PAYLOADS)
        if words.isascii() and words.isprintable() and "$" not in words
    ]
    found = []
    for row, name in enumerate(SCENARIOS):
        value = corpus.filled(scripted.field("http.body"), ascii_texts[row * 5 % len(ascii_texts)])
        where = (f"--url={careless.url}/{name}", "--transport=streamable_http", f"--header=X-Ref={value}")
        found.append((*register, f"--name={name}", *where))
    return found


def _export(world: World) -> None:
    """The events, which are hostile by now, as files."""
    for form in ("csv", "jsonl"):
        answer = world.visitor.post("/exports/add/", {"format": form, "query": ""})
        assert answer.status_code == 302, re.findall(r"err[^<]*>[^<]+", answer.text)
    ended = "SELECT 1 FROM servers_export WHERE finished_at IS NOT NULL"
    until(world, lambda: len(world.stack.rows(ended)) == 2, "the exports were not written")


def _import(world: World) -> None:
    texts = [corpus.text(scripted.field("search.query"), row) for row in range(6)]
    entry = {"command": texts[0], "args": texts[1:3], "env": {"A": texts[3]}, "description": texts[4]}
    document = json.dumps({"mcpServers": {texts[5]: entry, "b": {"url": texts[0]}}})
    answer = world.visitor.post("/servers/import/", {"text": document})
    assert answer.status_code == 302, answer.text[:1000]
    world.import_preview = answer.headers["location"].rstrip("/").rpartition("/")[2]


def _call_everything(world: World, count: int) -> None:
    """Through the pages: tools, resources, prompts."""
    known = """SELECT 1 FROM servers_definition d JOIN servers_identity i ON i.id = d.identity_id
        JOIN servers_server s ON s.id = i.server_id WHERE s.slug = 'live' AND d.kind = 'prompt'"""
    until(world, lambda: world.stack.rows(known), "the scripted server has no lists")
    tools = [key for key in world._keys("tool") if key.startswith("call ")]
    asked = {"_unchecked": "yes"}
    answers = [
        *(
            world.visitor.post(f"/servers/{LIVE}/call/?{urlencode({'tool': key})}", asked | {"_confirm": key})
            for key in tools
        ),
        *(
            world.visitor.post(f"/servers/{LIVE}/resources/read/", {"uri": key})
            for key in world._keys("resource")[:count]
        ),
        *(
            world.visitor.post(f"/servers/{LIVE}/prompts/get/?{urlencode({'prompt': key})}")
            for key in world._keys("prompt")
        ),
        world.visitor.post(f"/servers/{LIVE}/subscribe/", {"uri": world._keys("resource")[0]}),
    ]
    refused = [answer.text[-600:] for answer in answers if answer.status_code not in (200, 302, 303)]
    assert not refused, refused[:2]
    placed = [answer.headers["location"] for answer in answers if "/calls/" in answer.headers.get("location", "")]
    world.live_calls = [place.rstrip("/").rpartition("/")[2] for place in placed]
    running = """SELECT 1 FROM mcp_sessions_call c JOIN servers_server s ON s.id = c.server_id
        WHERE s.slug = 'live' AND c.state IN ('requested', 'sent')"""
    until(world, lambda: not world.stack.rows(running), "some call never ended")


_STATE = """SELECT v.slug, s.state, s.fault, s.fault_detail, s.stderr_tail, s.catalog_warnings FROM mcp_sessions_mcpsession s
    JOIN servers_server v ON v.id = s.server_id WHERE v.slug = 'live'"""


def until(world: World, true: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, f"{words}: {[dict(row) for row in world.stack.rows(_STATE)]}"
        time.sleep(0.1)  # no event reports rows of another process


def never_written(world: World) -> list[str]:
    return [name for name in rows.plan() if not world.written.get(name)]
