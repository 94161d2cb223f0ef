"""The pages that `make screenshots` takes: one row a page. Add a row for each new page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from playwright.sync_api import Page


@dataclass
class World:
    """What the seeded product holds; paths are built from it."""

    setup_link: str = ""
    server: str = ""  # slug of the demo server
    succeeded: str = ""  # uid of a call that went well
    failed: str = ""  # uid of a call whose tool said isError
    audit: int = 0  # sequence number of an audit event about a call


class Stage(Enum):
    """How far the product's first day has come; pages are taken in this order."""

    FRESH = "no administrator"
    EMPTY = "an administrator and no server"
    FILLED = "the demo server and some calls"


@dataclass(frozen=True)
class Shot:
    name: str
    path: Callable[[World], str]
    stage: Stage = Stage.FILLED
    signed_in: bool = True
    prepare: Callable[[Page], None] | None = None  # opens a menu, fills a field; before the picture
    allow: tuple[str, ...] = field(default=())  # words of console errors that belong to the page


def at(path: str) -> Callable[[World], str]:
    return lambda world: path


def on_server(rest: str) -> Callable[[World], str]:
    return lambda world: f"/servers/{world.server}/{rest}"


def open_palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.locator("dialog[open]").wait_for()


def open_shortcuts(page: Page) -> None:
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()


SHOTS = [
    Shot("setup", lambda world: world.setup_link, Stage.FRESH, signed_in=False),
    Shot("sign-in", at("/accounts/login/"), Stage.EMPTY, signed_in=False),
    Shot("overview-empty", at("/"), Stage.EMPTY),
    Shot("servers-empty", at("/servers/"), Stage.EMPTY),
    Shot("server-add", at("/servers/add/"), Stage.EMPTY),
    Shot("overview", at("/")),
    Shot("servers", at("/servers/")),
    Shot("tools", on_server("tools/")),
    Shot("tool-form", on_server("tools/?tool=search_notes")),
    Shot("tool-called", on_server("tools/?tool=greet")),
    Shot("resources", on_server("resources/")),
    Shot("prompts", on_server("prompts/")),
    Shot("logs", on_server("logs/")),
    Shot("history", on_server("history/")),
    Shot("settings", on_server("settings/")),
    Shot("info", on_server("info/")),
    Shot("clone", on_server("clone/")),
    Shot("delete", on_server("delete/")),
    Shot("call", lambda world: f"/calls/{world.succeeded}/"),
    Shot("call-failed", lambda world: f"/calls/{world.failed}/"),
    Shot("audit", at("/audit/")),
    Shot("audit-none", at("/audit/?text=nothing-has-this-name")),
    Shot("audit-event", lambda world: f"/audit/{world.audit}/"),
    Shot("palette", at("/"), prepare=open_palette),
    Shot("shortcuts", at("/"), prepare=open_shortcuts),
    Shot("password", at("/accounts/password/change/")),
    Shot("not-found", at("/servers/no-such-server/"), allow=("404",)),
]
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
THEMES = ("light", "dark")
