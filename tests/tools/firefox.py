"""Real Firefox for Playwright: the system's own, driven over WebDriver BiDi through a relay.

Playwright 1.65 sends emulation.setMediaFeaturesOverride for every new window, and Firefox 153 ESR does not know it, so
no window would open. The relay passes all messages on, and replaces that refusal by a success. What the command would
have set, the reader's colours, is set by `preferences` when Firefox starts.

Playwright starts this module in place of Firefox: it reads the address of the relay in its output.
"""

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from playwright.sync_api import Browser, Playwright

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("firefox-esr", "firefox")
LISTENING = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
#: what Firefox may refuse as unknown, because `preferences` sets the same
SET_BY_PREFERENCES = "emulation.setMediaFeaturesOverride"
DARK, LIGHT, REDUCED = 0, 1, 1


def executable() -> str | None:
    chosen = os.environ.get("FIREFOX")
    return chosen or next((path for name in NAMES if (path := shutil.which(name))), None)


def preferences(theme: str) -> dict[str, Any]:
    scheme = {"dark": DARK, "light": LIGHT}[theme]
    return {"layout.css.prefers-color-scheme.content-override": scheme, "ui.prefersReducedMotion": REDUCED}


@contextmanager
def started(playwright: Playwright, directory: Path, theme: str = "light") -> Iterator[Browser]:
    """`directory`: an empty one, for the program that Playwright starts."""
    if executable() is None:
        pytest.skip("Firefox is not installed (Debian: apt install firefox-esr; elsewhere: FIREFOX=/path/to/it)")
    program = directory / "firefox"
    program.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m tests.tools.firefox "$@"\n')
    program.chmod(0o700)
    browser = playwright.firefox.launch(
        channel="moz-firefox", executable_path=program, firefox_user_prefs=preferences(theme)
    )
    yield browser
    browser.close()


class Relay:
    """Between Playwright and Firefox, on one connection."""

    def __init__(self, firefox: str) -> None:
        self._firefox = firefox

    async def __call__(self, playwright: websockets.ServerConnection) -> None:
        async with websockets.connect(f"{self._firefox}/session", max_size=None, proxy=None) as firefox:
            excused: set[int] = set()
            ways = [self._ask(playwright, firefox, excused), self._answer(firefox, playwright, excused)]
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    async def _ask(self, playwright: Any, firefox: Any, excused: set[int]) -> None:
        async for text in playwright:
            if SET_BY_PREFERENCES in text:
                excused.add(json.loads(text)["id"])
            await firefox.send(text)

    async def _answer(self, firefox: Any, playwright: Any, excused: set[int]) -> None:
        async for text in firefox:
            await playwright.send(_excuse(text) if excused and _answered(text) in excused else text)


def _answered(text: str) -> int | None:
    found: int | None = json.loads(text).get("id")
    return found


def _excuse(text: str) -> str:
    answer = json.loads(text)
    if answer["type"] == "error" and answer["error"] == "unknown command":
        answer = {"type": "success", "id": answer["id"], "result": {}}
    return json.dumps(answer)


async def main(arguments: list[str]) -> int:
    """Run Firefox and the relay until Firefox ends."""
    path = executable()
    assert path is not None
    pipe = asyncio.subprocess.PIPE
    firefox = await asyncio.create_subprocess_exec(path, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=pipe)
    assert firefox.stderr is not None
    async for line in firefox.stderr:
        if found := LISTENING.search(line):  # not passed on: Playwright takes the first address
            break
        sys.stderr.buffer.write(line)
    else:
        return await firefox.wait()
    async with websockets.serve(Relay(found[1].decode()), "127.0.0.1", 0, max_size=None) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"WebDriver BiDi listening on ws://127.0.0.1:{port}", file=sys.stderr, flush=True)
        async for line in firefox.stderr:
            sys.stderr.buffer.write(line)
    return await firefox.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
