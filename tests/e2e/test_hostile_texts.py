"""No text of a server, a person or an agent is executed, loads anything or leaves an element on any page: every field holds
texts of the corpus, every page of the URLconf is opened in Chromium, and every download is read."""

import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Error, Page

from tests.canary.careless import Careless
from tests.e2e.conftest import cookies_of_a_sign_in
from tests.e2e.hostile import corpus, detector, rows, scripted
from tests.e2e.hostile.detector import Detector, formulas, watched
from tests.e2e.hostile.world import LIVE, QUERIES, WORK, World, fill, never_written
from tests.e2e.sockets import Visitor
from tests.tools.stack import Stack, started_stack

pytestmark = [pytest.mark.browser, pytest.mark.up, pytest.mark.slow]
#: rows of each kind
FEW, ALL = 4, 32
#: paths of a route in the long form, and pages in the short one
MOST, MOST_OF_FEW = 4, 10
#: types that a browser shows without running anything
HARMLESS = ("application/json", "application/x-ndjson", "text/plain", "text/csv", "image/png", "image/jpeg", "image/webp",
            "image/gif", "application/pdf", "audio/", "video/")  # fmt: skip
OPEN = (
    "() => { for (const fold of document.querySelectorAll('details:not([open])')) fold.open = true; scrollTo(0, 1e6); }"
)
#: switches of views and tabs; what submits a form stays
SWITCH = """() => { for (const one of document.querySelectorAll(
  'button[data-view], button[type=button][role=tab], [role=tab]:not(a), button[name=_switch][value=json]')) one.click(); }"""


# --- the detector ----------------------------------------------------------------------------------------------------
class Control(BaseHTTPRequestHandler):
    """/3/ shows the third text of the corpus unprotected."""

    def do_GET(self) -> None:
        part = self.path.strip("/").partition("/")[0]
        if self.path == "/twice.js":
            kind, body = "text/javascript", detector.TWICE
        elif part.isdigit() and self.path == f"/{part}/":
            place = int(part)
            kind, body = "text/html", detector.unprotected(corpus.PAYLOADS[place][0], corpus.filled(999, place))
        else:
            kind, body = "text/html", detector.protected()
        data = body.encode("utf-8", "replace")
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def control() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Control)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)], ids=["a fifth", "all"])
def test_the_detector_finds_each_text_of_the_corpus_on_a_page_without_protection(
    step: int, control: str, browser: Browser
) -> None:
    missed = []
    with watched(browser, control) as (seen, page):
        for place, (kind, words) in list(enumerate(corpus.PAYLOADS))[::step]:
            if kind == "cell":
                missed += [] if formulas(f'"{words}"'.replace('"', '""')[1:-1]) or formulas(_cell(words)) else [words]
                continue
            seen.clear()
            visit(seen, page, f"/{place}/")
            found = [
                what
                for _, what in seen.found
                if what != "not watched" and (not kind.startswith("script") or "executed" in what or "request" in what)
            ]
            if not found:
                missed.append(f"{kind}: {words}: {seen.found}")
    assert missed == []


def _cell(words: str) -> str:
    return '"' + words.replace('"', '""') + '"'


def test_the_detector_finds_nothing_on_a_page_that_shows_the_corpus_escaped(control: str, browser: Browser) -> None:
    with watched(browser, control) as (seen, page):
        visit(seen, page, "/escaped/")
    assert seen.found == []


# --- visiting --------------------------------------------------------------------------------------------------------
def visit(seen: Detector, page: Page, path: str) -> None:
    """Open a page, its folds and views."""
    seen.expected = path
    try:
        answer = page.goto(path, wait_until="load")
        if answer is not None:
            seen.answered(answer.status, answer.url)
        seen.settle(page)
        page.evaluate(OPEN)
        seen.settle(page)
        seen.scan(page)
        page.evaluate(SWITCH)
        seen.settle(page)
        seen.scan(page)
        seen.hear(page)
    except Error as problem:  # the page left while it was looked at
        seen.say(f"left: {str(problem)[:120]}")


def report(found: list[tuple[str, str]], most: int = 40) -> str:
    """With the names of the fields in what was found."""
    names = [*corpus.SERVER_FIELDS, *rows.plan()]
    lines = []
    for what, path in list({what: path for path, what in reversed(found)}.items())[::-1][:most]:
        marks = {int(mark[1]) for mark in corpus.MARK.finditer(what)}
        lines.append(f"{path[:90]}: {what} {[names[mark] for mark in marks if mark < len(names)]}")
    return "\n".join(lines)


class Sweep:
    def __init__(self, world: World, browser: Browser) -> None:
        self.world, self.browser = world, browser
        self.pages: dict[str, str] = {}
        self.downloads: dict[str, Any] = {}
        self.wrong: list[str] = []
        self.marks: dict[str, set[int]] = {}

    def read(self, paths: dict[str, list[str]]) -> None:
        """Sort what the paths answer into pages and downloads."""
        for name, some in paths.items():
            for path in some:
                answer = self.world.visitor.get(path)
                if answer.status_code == 405:
                    break  # it takes only a POST
                self._answered(name, path, answer)

    def _answered(self, name: str, path: str, answer: Any) -> None:
        if answer.status_code >= 500:
            self.wrong.append(f"{path}: {answer.status_code}")
        elif answer.status_code in (204, 304) or answer.is_redirect:
            return
        elif answer.headers["content-type"].startswith("text/html"):
            self.pages[path] = name if answer.status_code < 400 else ""
        else:
            self.download(path, answer)
        self.marks[path] = {int(mark[1]) for mark in corpus.MARK.finditer(answer.text)}

    def download(self, path: str, answer: Any) -> None:
        """It is a file, or of a type that runs nothing, and no browser guesses another."""
        head = answer.headers
        kind, disposition = head.get("content-type", ""), head.get("content-disposition", "")
        self.downloads[path] = kind
        if not (disposition.startswith("attachment") or kind.startswith(HARMLESS)):
            self.wrong.append(f"{path}: {kind} is shown by a browser")
        if head.get("x-content-type-options") != "nosniff" or "content-security-policy" not in head:
            self.wrong.append(f"{path}: without nosniff or a policy")
        if any(ord(letter) < 32 or ord(letter) > 126 for letter in disposition + kind):
            self.wrong.append(f"{path}: a header with {disposition!r} {kind!r}")
        if "csv" in kind:
            self.wrong += [f"{path}: the cell {cell!r}" for cell in formulas(answer.text)]

    def post_downloads(self) -> None:
        """Files for a form's upload fields."""
        orders = {
            f"/servers/{LIVE}/protocol/export/": {},
            f"/servers/{WORK}/protocol/export/": {},
            "/servers/export/": {"form": "mcpServers", "own": "on", "servers": [LIVE, WORK]},
            "/agents/bundles/team-tools/export/": {},
        }
        for path, data in orders.items():
            answer = self.world.visitor.post(path, data)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:600])
            assert not answer.headers["content-type"].startswith("text/html"), path
            self.download(f"POST {path}", answer)

    def fullest(self, most: int) -> list[str]:
        """The pages that together show most fields."""
        chosen: list[str] = []
        shown: set[int] = set()
        for _ in range(most):
            best = max(self.pages.keys() - chosen, key=lambda path: (len(self.marks[path] - shown), path))
            chosen.append(best)
            shown |= self.marks[best]
        return chosen

    def walk(self, paths: Iterable[str], **options: Any) -> list[tuple[str, str]]:
        """What was found on these pages."""
        cookies = cookies_of_a_sign_in(self.world.stack)
        with watched(self.browser, self.world.stack.base_url, **options) as (seen, page):
            seen.context.add_cookies(cookies)
            for path in paths:
                visit(seen, page, path)
            self.act(seen, page)
        return seen.found

    def act(self, seen: Detector, page: Page) -> None:
        """What only scripts show: a call that runs beside the page, the palette, completion of a query."""
        for key in [key for key in self.world._keys("tool") if key.startswith(("call 3 ", "ask form"))]:
            visit(seen, page, f"/servers/{LIVE}/tools/?{urlencode({'tool': key})}")
            page.locator("[role=status]", has_text="Live").first.wait_for()
            if page.locator("[name=_confirm]").count():
                page.locator("[name=_confirm]").fill(key)
            page.get_by_role("button", name="Run tool").click()
            slot, form = page.locator("#results .call-slot").first, page.locator("#results #answer-form")
            (form if key == "ask form" else slot.get_by_text("Succeeded").first).wait_for()
            page.evaluate(OPEN)
            page.evaluate(SWITCH)
            seen.settle(page)
            seen.scan(page)
            if key == "ask form":
                form.get_by_role("button", name="Decline").press("Enter")  # toasts may lie above it
                slot.get_by_text("Succeeded").first.wait_for()
        visit(seen, page, "/")
        page.keyboard.press("Control+k")
        page.keyboard.type("hit")
        seen.settle(page)
        seen.scan(page)


@pytest.fixture
def started() -> Iterator[Stack]:
    with started_stack(administrator=True, env={"MCPADMIN_TRIES_PER_MINUTE": "0"}) as stack:
        yield stack


def tracebacks(output: str) -> list[str]:
    """Each with the lines after it."""
    lines = output.splitlines()
    return ["\n".join(lines[at : at + 60]) for at, line in enumerate(lines) if "Traceback" in line]


def counts(sweep: Sweep, found: list[tuple[str, str]], began: float) -> str:
    fields = len(corpus.SERVER_FIELDS) + len(rows.plan())
    seen = sum(mark < fields for mark in set().union(*sweep.marks.values()))
    return (
        f"{fields} fields ({seen} seen in what was read) x {len(corpus.PAYLOADS)} texts, {len(sweep.pages)} pages, "
        f"{len(sweep.downloads)} downloads, {len(found)} findings, {time.monotonic() - began:.0f} s"
    )


def reflecting(paths: dict[str, list[str]]) -> dict[str, list[str]]:
    """The first page of each route with a text in everything that pages read from their query."""
    field = scripted.field("search.query")
    found = {}
    for turn, (name, some) in enumerate(paths.items()):
        place = some[0].partition("?")[0] if some else ""
        every = {query: corpus.text(field, turn + at * 5) for at, query in enumerate(QUERIES)}
        some_words = {query: every[query] for query in ("q", "text", "find", "path", "uri")}
        found[f"{name} reflecting"] = (
            [f"{place}?{urlencode(every)}", f"{place}?{urlencode(some_words)}"] if place else []
        )
    return found


def test_every_text_field_of_the_models_is_hostile_or_says_why_not() -> None:
    assert rows.unplanned() == []


def test_no_page_runs_a_text_of_the_corpus(started: Stack, browser: Browser) -> None:
    """Without the policy that would refuse to run it: on the pages that show most."""
    began = time.monotonic()
    world = World(started, Visitor(started))
    fill(world, None, FEW)
    sweep = Sweep(world, browser)
    sweep.read(world.paths(1))
    found = sweep.walk(sweep.fullest(MOST_OF_FEW), bypass_csp=True)
    print(counts(sweep, found, began))
    assert sweep.wrong == [], "\n".join(sweep.wrong)
    assert found == [], report(found)


@pytest.mark.long
def test_no_page_of_any_row_runs_a_text_of_the_corpus_or_breaks_the_policy(started: Stack, browser: Browser) -> None:
    """Without the policy on every page, and under it on the first of each route."""
    began = time.monotonic()
    with Careless() as careless:
        world = World(started, Visitor(started))
        fill(world, careless, ALL)
        assert never_written(world) == []
        sweep, paths = Sweep(world, browser), world.paths(MOST)
        sweep.read(paths | reflecting(paths))
        sweep.post_downloads()
        found = sweep.walk(sweep.pages, bypass_csp=True)
        first = [some[0] for some in paths.values() if some and some[0] in sweep.pages]
        found += sweep.walk(first)
    print(counts(sweep, found, began))
    assert sweep.wrong == [], "\n".join(sweep.wrong)
    assert found == [], report(found)
    assert tracebacks(started.output) == []
