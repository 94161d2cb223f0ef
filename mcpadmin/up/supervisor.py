"""The course of one `up`: bring the parts up in order, keep them, stop them in order."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

from django.conf import settings

from mcpadmin import setup
from mcpadmin.up import assets, database, listener, lock, parts, process, socket_path
from mcpadmin.up.clock import since_command
from mcpadmin.up.family import Family
from mcpadmin.up.keeper import Keeper
from mcpadmin.up.options import LOOPBACK, Options, url_of
from mcpadmin.up.output import Output
from mcpadmin.up.parts import Part
from mcpadmin.up.problems import StartProblem
from mcpadmin.up.sentry import Sentry
from mcpadmin.up.threads import in_daemon_thread

STOP_ORDER = ("web", "beat", "worker", "valkey")


class Supervisor:
    """Holds the lock and the listening socket already when `run` is called; gives both back when it returns."""

    def __init__(self, options: Options, output: Output, lock_descriptor: int, listening: socket.socket) -> None:
        self._options, self._output, self._lock, self._listening = options, output, lock_descriptor, listening
        self._port = listening.getsockname()[1]
        self._url = os.environ.get("MCPADMIN_PUBLIC_URL", "").rstrip("/") or url_of(options.host, self._port)
        self._valkey_dir = Path(settings.VALKEY_DIR)
        self._embedded = not settings.REDIS_URL

    async def run(self) -> None:
        """Returns after an orderly stop; raises StartProblem when the start fails."""
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._catch_signals()
        process.become_subreaper()
        self._sentry = Sentry(self._options.data_dir, self._valkey_dir, self._lock)
        self._family = Family(self._sentry)
        bringing_up = asyncio.create_task(self._bring_up())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({bringing_up, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if bringing_up.done():
                bringing_up.result()
                await stopping
        finally:
            bringing_up.cancel()
            stopping.cancel()
            await self._shut_down()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        heard = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup asked for a life after the terminal
            heard.append(signal.SIGHUP)
        for number in heard:
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            self._output.say("stopping at once")
            self._hurry.set()
            return
        self._output.say(f"{signal.Signals(number).name}: stopping (once more stops at once)")
        self._stop.set()

    async def _bring_up(self) -> None:
        socket_file = await self._prepare_valkey()
        self._env = parts.environment(self._options, self._url, socket_file, os.isatty(1))
        if self._embedded:
            await self._start(parts.valkey_part(self._valkey_dir, socket_file))
        await self._prepare_files()
        web = parts.web_part(self._options, self._listening.fileno(), self._port)
        rest = [*parts.worker_parts(self._options.workers), parts.beat_part(self._options.data_dir)]
        await self._start(web, *rest)
        await self._welcome()

    async def _prepare_valkey(self) -> Path:
        if not self._embedded:
            return Path(settings.VALKEY_SOCKET)
        self._valkey_dir.mkdir(mode=0o700, exist_ok=True)
        return socket_path.choose(self._valkey_dir)

    async def _prepare_files(self) -> None:
        await asyncio.gather(self._prepare_database(), self._prepare_assets())

    async def _prepare_database(self) -> None:
        begin = monotonic()
        count = await in_daemon_thread(database.bring_up_to_date)
        done = f"{count} migrations applied" if count else "nothing to migrate"
        self._output.say(f"database ready in {monotonic() - begin:.2f} s ({done})")

    async def _prepare_assets(self) -> None:
        begin = monotonic()
        if files := await in_daemon_thread(assets.collect):
            self._output.say(f"static files ready in {monotonic() - begin:.2f} s ({files} collected)")

    async def _start(self, *what: Part) -> None:
        keepers = [Keeper(part, self._env, self._output, self._sentry.started) for part in what]
        self._family.keepers += keepers
        for keeper in keepers:
            keeper.start()
        await asyncio.gather(*(keeper.first_ready for keeper in keepers))

    async def _welcome(self) -> None:
        self._warn_of_root()
        self._warn_of_the_network()
        if await in_daemon_thread(database.needs_administrator):
            self._output.say("no administrator exists yet; create the first one here (works once, for 24 hours):")
            self._output.say(f"  {setup.link(self._url)}")
        lock.note(self._lock, self._url)
        self._output.say(f"mcpadmin is ready after {since_command():.1f} s: {self._url}")
        if self._options.browser:
            self._family.outsiders.add(_open_browser(self._url))

    def _warn_of_root(self) -> None:
        if os.geteuid() == 0:
            self._output.say(
                "warning: this runs as root, and so does each registered command; give mcpadmin a user of its own"
            )

    def _warn_of_the_network(self) -> None:
        if self._options.host in LOOPBACK:
            return
        if not self._url.startswith("https://"):
            self._output.say(
                "warning: passwords and secrets cross the network unencrypted; put a TLS proxy before it and set MCPADMIN_PUBLIC_URL=https://…"
            )
        if "MCPADMIN_PUBLIC_URL" not in os.environ:
            self._output.say(
                f"warning: other machines are refused until MCPADMIN_PUBLIC_URL names the address they use (now {self._url})"
            )

    async def _shut_down(self) -> None:
        await self._family.stop(STOP_ORDER, self._hurry)
        self._listening.close()
        if self._embedded and self._valkey_dir.exists():
            socket_path.forget(self._valkey_dir)
        self._sentry.dismiss()
        lock.release(self._options.data_dir, self._lock)


def _open_browser(url: str) -> int:
    """As a process of its own: a text browser must not take the terminal, a graphical one must outlive us."""
    env = {**os.environ, process.KEEP_MARKER: "1"}
    quiet = subprocess.DEVNULL
    argv = [sys.executable, "-m", "webbrowser", url]
    return subprocess.Popen(  # noqa: S603 - our own words, no shell
        argv, env=env, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    ).pid


def supervise(options: Options) -> None:
    """Everything from the lock to the last part's end. Raises StartProblem."""
    lock_descriptor = lock.acquire(options.data_dir)
    output = Output()
    try:
        listening = listener.listen(options.host, options.port)
    except StartProblem:
        lock.release(options.data_dir, lock_descriptor)
        raise
    try:
        asyncio.run(Supervisor(options, output, lock_descriptor, listening).run())
        output.say("stopped")
    finally:
        output.close()
