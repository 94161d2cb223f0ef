"""What shows that a page ran, loaded or kept a text of the corpus: executions, dialogs, navigations, frames, requests to other
hosts, refusals of the content security policy, foreign elements and attributes, hidden characters.

`control` proves each of them with a page that shows the texts unprotected.
"""

import csv
import html
import io
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from django.template import Context, Engine
from playwright.sync_api import Browser, BrowserContext, Error, Page

from tests.e2e.hostile import corpus

#: what the texts call, in every frame: `ran` for the next look, and a line that stays when the page leaves
RUN = """window.hit = (number) => { (window.ran ??= []).push(number); console.info(`executed ${number}`); };"""
#: Elements and attributes that no page of ours has, and what only a text of the corpus can have left. `hit` and EVIL stand in
#: many links and labels: there, what a browser would do with the value decides.
SCAN = r"""([hidden, evil]) => {
  if (typeof window.hit !== 'function') return ['not watched'];
  const found = (window.ran ?? []).map((number) => `executed ${number}`);
  const shown = (node) => (node.outerHTML ?? node.textContent).slice(0, 160);
  const say = (what, node) => found.length < 40 && found.push(`${what}: ${shown(node)}`);
  const foreign = new Set(`applet base bgsound embed frame frameset maction marquee math mglyph mtext noembed
    noframes object portal style x xmp`.split(/\s+/));
  const inSvg = new Set(['animate', 'animatemotion', 'animatetransform', 'foreignobject', 'image', 'script', 'set', 'style']);
  const urls = new Set(`action cite data formaction href poster src xlink:href background ping manifest`.split(' '));
  const words = new Set(['title', 'aria-label', 'alt', 'placeholder', 'aria-description']);
  const hiding = new RegExp(hidden, 'u');
  const marked = (value) => value.includes('hit(') || value.includes(evil);
  const roots = [document, ...[...document.querySelectorAll('template')].map((one) => one.content)];
  for (const root of roots) for (const node of root.querySelectorAll('*')) {
    const name = node.localName.toLowerCase();
    if (foreign.has(name) || (inSvg.has(name) && node.closest('svg'))) say('foreign element', node);
    if (name === 'script' && !node.src && !/json|importmap/.test(node.type)) say('script', node);
    if (name === 'meta' && node.httpEquiv) say('http-equiv', node);
    if (node.id === 'clobber' || node.getAttribute('name') === 'clobber') say('clobbers', node);
    for (const { name: raw, value } of node.attributes) {
      const attribute = raw.toLowerCase();
      if (/^on|^srcdoc$|^x-|^v-|^@|^hx-on|^data-hx-/.test(attribute)) say(`attribute ${attribute}`, node);
      if (attribute === 'style' && (marked(value) || /url\(/.test(value))) say('style', node);
      if (/^hx-(get|post|put|patch|delete)$/.test(attribute) && !/^\/(?![\/\\])/.test(value)) say(attribute, node);
      if (/^hx-(vals|vars|headers|trigger)$/.test(attribute) && marked(value)) say(attribute, node);
      if (attribute === 'srcset' && marked(value)) say('srcset', node);
      if (urls.has(attribute)) {
        let url; try { url = new URL(value, document.baseURI); } catch { continue; }
        if (['javascript:', 'vbscript:'].includes(url.protocol)) say('address', node);
        if (['data:', 'blob:', 'file:'].includes(url.protocol) && marked(value)) say('address', node);
        if (/action$/.test(attribute) && url.origin !== location.origin) say('form to another host', node);
      }
      if (words.has(attribute) && hiding.test(value)) say(`hidden characters in ${attribute}`, node);
    }
  }
  if (hiding.test(document.title)) say('hidden characters in the title', document.head);
  if (document.body) {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text; (text = walk.nextNode()); ) {
      if (text.parentElement.closest('script, textarea, noscript, option')) continue;
      if (hiding.test(text.data)) say('hidden characters', text);
      if (/hit\d{8}/.test(text.data)) say('an evaluated template', text);
    }
  }
  return found;
}"""
#: without tab, newline, and what joins emoji
HIDDEN = "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u200b\\u200d-\\u200f\\u2028-\\u202e" \
    "\\u2060-\\u2069\\u3164\\ufeff\\u{e0000}-\\u{e007f}]"  # fmt: skip
FORMULA = re.compile(r"[=+\-@\t\r]")
#: the frame of an `about:` page is no navigation
BLANK = ("about:blank", "chrome-error://chromewebdata/")


@dataclass
class Detector:
    """Watches all pages of a context."""

    context: BrowserContext
    base_url: str
    events: list[tuple[str, str]] = field(default_factory=list)
    expected: str = ""  # the path that was opened
    #: (path of the page, the console's words, address) of what could not be loaded
    unloaded: list[tuple[str, str, str]] = field(default_factory=list)
    #: addresses of opened pages that lack what they were asked for. Their scripts ask again, and the console may say so when
    #: the next page is open already
    lacking: set[str] = field(default_factory=set)
    waiting: set[Any] = field(default_factory=set)
    looks: int = 0

    def __post_init__(self) -> None:
        self.context.add_init_script(RUN)
        self.context.on("page", self.watch)

    @property
    def found(self) -> list[tuple[str, str]]:
        """(path of the page, what happened)"""
        failed = [
            (path, f"console: {words[:200]} {address[:200]}")
            for path, words, address in self.unloaded
            if unquote(address) not in self.lacking
        ]
        return self.events + failed

    def clear(self) -> None:
        self.events.clear()
        self.unloaded.clear()

    def say(self, what: str) -> None:
        self.events.append((self.expected, what))

    def answered(self, status: int, address: str) -> None:
        """By an opened page."""
        if status >= 500:
            self.say(f"the page answered {status}")
        elif status >= 400:
            self.lacking.add(unquote(address))

    def watch(self, page: Page) -> None:
        page.on("dialog", self._on_dialog)
        page.on("popup", lambda popup: self.say(f"popup {popup.url}"))
        page.on("framenavigated", self._on_navigation)
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        for ended in ("requestfinished", "requestfailed"):
            page.on(ended, lambda request: self.waiting.discard(request))

    def _on_dialog(self, dialog: Any) -> None:
        if dialog.type != "beforeunload":
            self.say(f"dialog {dialog.message[:80]}")
        dialog.accept()

    def _on_navigation(self, frame: Any) -> None:
        if frame.url in BLANK and frame.parent_frame is None:
            return
        if not frame.url.startswith(self.base_url) or (
            frame.parent_frame is not None and "/contents/" not in frame.url
        ):
            self.say(f"navigated {'a frame' if frame.parent_frame else 'away'} to {frame.url[:120]}")

    def _on_console(self, message: Any) -> None:
        """Refusals of the policy, and errors of scripts that stumbled over a text."""
        if message.text.startswith("executed "):
            self.say(message.text)
        address = message.location.get("url", "")
        if message.text.startswith("Failed to load resource: the server responded with a status of 4"):
            self.unloaded.append((self.expected, message.text, address))
        elif message.type == "error":
            self.say(f"console: {message.text[:200]} {address[:200]}")

    def _on_request(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in {"http", "https", "ws", "wss", "ftp"} and parts.netloc != urlsplit(self.base_url).netloc:
            self.say(f"request to another host: {request.url[:120]}")
        elif parts.scheme in {"http", "https"}:
            self.waiting.add(request)

    def settle(self, page: Page) -> None:
        """Until nothing is requested any more and what was scheduled by then has run."""
        for _ in range(1_000):
            page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            if not self.waiting:
                return
            page.wait_for_timeout(10)  # its events arrive meanwhile
        raise AssertionError(f"{self.expected} still waits for {[one.url for one in self.waiting]}")

    def hear(self, page: Page) -> None:
        """Until all has arrived that the console said before: its messages come in order."""
        self.looks += 1
        words = f"look {self.looks}"
        with page.expect_console_message(lambda message: message.text == words):
            page.evaluate("(words) => console.info(words)", words)

    def scan(self, page: Page) -> None:
        for frame in page.frames:
            try:
                for what in frame.evaluate(SCAN, [HIDDEN, corpus.EVIL]):
                    self.say(what)
            except Error as problem:  # the page navigated away, which is also a finding
                if "detached" not in str(problem) and "navigation" not in str(problem):
                    raise


@contextmanager
def watched(browser: Browser, base_url: str, **options: Any) -> Iterator[tuple[Detector, Page]]:
    context = browser.new_context(base_url=base_url, reduced_motion="reduce", **options)
    detector = Detector(context, base_url.rstrip("/"))
    page = context.new_page()
    page.set_default_timeout(20_000)
    try:
        yield detector, page
    finally:
        context.close()


def formulas(text: str) -> list[str]:
    """The cells of a table in CSV that a spreadsheet would evaluate."""
    return [
        cell[:60] for row in csv.reader(io.StringIO(text)) for cell in row if FORMULA.match(cell) and not number(cell)
    ]


def number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", cell) is not None


# --- the control -----------------------------------------------------------------------------------------------------
def unprotected(kind: str, text: str) -> str:
    """A page that shows the text in the place where it is live, without any protection."""
    return f"<!doctype html><title>x</title><body>{_SHOWN[kind](text)}</body>"


def protected() -> str:
    """All texts as every page must show them, but those that would show what hides text."""
    texts = [words for kind, words in corpus.PAYLOADS if kind != "text"]
    return "<!doctype html><title>x</title><body>" + "".join(
        f"<p title='{html.escape(one)}'>{html.escape(one)}</p>" for one in texts
    )


def _rendered(text: str) -> str:
    return Engine().from_string(text).render(Context())


def _linked(text: str) -> str:
    """The HTML that Markdown without a sanitizer produces."""
    text = re.sub(r"!\[([^\]]*)\]\(((?:[^()]|\([^()]*\))*)\)", r'<img alt="\1" src="\2">', text)
    text = re.sub(r"\[([^\]]*)\]\(((?:[^()]|\([^()]*\))*)\)", r'<a href="\2">\1</a>', text)
    return re.sub(r"^<(\w+:[^>]*)>$", r'<a href="\1">x</a>', text)


TWICE = """const once = document.createElement('div'), again = document.createElement('div');
once.innerHTML = document.querySelector('textarea').value;
again.innerHTML = once.innerHTML;
document.body.append(again);"""


_SHOWN: dict[str, Any] = {
    "html": str,
    "double": lambda text: f'<input value="{text}">',
    "single": lambda text: f"<input value='{text}'>",
    "bare": lambda text: f"<input value={text}>",
    "script": lambda text: f'<script>let x = "{text}";</script>',
    "script'": lambda text: f"<script>let x = '{text}';</script>",
    "script`": lambda text: f"<script>let x = `{text}`;</script>",
    "url": lambda text: f'<a href="{html.escape(text)}">x</a><img src="{html.escape(text)}">',
    "css": lambda text: f'<p style="background:{text}">x</p>',
    "markdown": _linked,
    "entity": html.unescape,
    "percent": unquote,
    "escape": lambda text: text.encode().decode("unicode_escape"),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "upper": lambda text: text.upper(),
    "twice": lambda text: f"<textarea>{html.escape(text)}</textarea><script src=/twice.js></script>",
    "template": _rendered,
    "text": html.escape,
}
