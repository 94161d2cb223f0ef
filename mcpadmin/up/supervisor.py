"""What `up` runs: the command line of each part, its restarts, the group of its children, a run from start to stop."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcpadmin import hardening
from mcpadmin.installation import PROGRAM
from mcpadmin.up import init, preflight, process, ready, unprivileged, valkey
from mcpadmin.up.options import HELP, LOOPBACK, Options, StartProblem, add_arguments, url_of
from mcpadmin.up.orphan_guard import OrphanGuard
from mcpadmin.up.process import Child, Output, Part

_IMPORTED = time.monotonic()
DRAIN_SECONDS = 7.0
FIRST_DELAY = 0.5
CEILING = 30.0
# A part that ran this long was healthy: its next death resets the backoff.
WELL_SECONDS = 60.0
# A part that dies this often before it ever served will not recover.
MAX_FALSE_STARTS = 4
# Report a start that takes longer than this.
SLOW_SECONDS = 30.0
SWEEP_SECONDS = 5.0
FIRST_FREE_PORT = 1_024
# The total for all parts, so that `up` ends within 10 s even on a loaded machine. LAST_SECONDS of it stay reserved for
# Valkey, which stops last.
STOP_SECONDS = 8.6
LAST_SECONDS = 0.7
STATIC_MANIFEST = "static/staticfiles.json"  # in the data directory; written last by the first collection
OWN_ADDRESS = {"web": "REDIS_URL_WEB", "worker": "REDIS_URL_WORKER"}
#: Web processes and workers stop together: agents wait at the web for calls that the workers still finish.
STOP_ORDER = (("web", "worker"), ("valkey",))


def valkey_part(directory: Path, socket_file: Path, password: str) -> Part:
    argv = tuple(valkey.arguments(directory, socket_file))
    probe = partial(valkey.answers, socket_file, password)
    return Part("valkey", "valkey", argv, 0.8, probe=probe, repair=partial(valkey.set_aside, directory))


def secrets_of(role: str, login: str) -> dict[str, str]:
    """What a part of this role gets: our own secrets, with the login of its role at the embedded Valkey (`login`), or
    with REDIS_URL_<ROLE> in place of REDIS_URL."""
    secrets = dict(hardening.private)
    if own := secrets.get(OWN_ADDRESS.get(role, "")):
        secrets["REDIS_URL"] = own
    return secrets | ({valkey.LOGIN_VARIABLE: login} if login else {})


def check_addresses() -> None:
    given = [name for name in OWN_ADDRESS.values() if hardening.variables.get(name)]
    if given and not hardening.variables.get("REDIS_URL"):
        raise StartProblem(
            f"{given[0]} is set, but REDIS_URL is not",
            "Set REDIS_URL too: manage.py commands and the other processes use it.",
        )


def preparing_part(secrets: Mapping[str, str]) -> Part:
    """A job that ends on its own. It needs Django, which would cost `up` 60 MB for as long as it runs."""
    return Part("up", "up", (sys.executable, "-m", "mcpadmin", "prepare"), 0.5, secrets=secrets)


def web_parts(count: int, listening: int, reports: int, prepared: int, secrets: Mapping[str, str]) -> list[Part]:
    """All web processes accept from the same listening socket."""
    names = ["web"] if count == 1 else [f"web{number}" for number in range(1, count + 1)]
    # An IPv6 socket works too: daphne assumes an address family for `--fd`, but uses it only to name the peers.
    options_of_daphne = f"--fd {listening} -v 0 --no-server-name --application-close-timeout 2"
    argv = (sys.executable, "-m", "mcpadmin.web.daphne", *options_of_daphne.split(), "mcpadmin.asgi:application")
    env = {ready.REPORTS_VARIABLE: str(reports), ready.PREPARED_VARIABLE: str(prepared)}
    descriptors = (listening, reports, prepared)
    grace = DRAIN_SECONDS + 0.4
    return [Part(name, "web", argv, grace, descriptors, env=env, secrets=secrets) for name in names]


def worker_parts(count: int, prepared: int, secrets: Mapping[str, str]) -> list[Part]:
    """The first one also runs beat."""
    names = ["worker"] if count == 1 else [f"worker-{number}" for number in range(1, count + 1)]
    # `prepare` has already checked the installation. Django's own checks would load every page into the worker.
    env = {"CELERY_SKIP_CHECKS": "true", ready.PREPARED_VARIABLE: str(prepared)}
    # Suppress Celery's warning about root: `up` prints its own, which names the consequence.
    quiet = "ignore:You're running the worker with superuser"
    program = (sys.executable, "-W", quiet, "-m", "mcpadmin.worker", "--hostname")
    argvs = [(*program, node_of(name), *(["--beat-thread"] if name == names[0] else [])) for name in names]
    return [
        Part(name, "worker", argv, DRAIN_SECONDS + 0.4, (prepared,), env=env, secrets=secrets)
        for name, argv in zip(names, argvs, strict=True)
    ]


def node_of(name: str) -> str:
    """The Celery node name of the part `name` (worker, worker-2)."""
    return f"worker{name.partition('-')[2] or 1}@{socket.gethostname()}"


def environment(options: Options, public_url: str, socket_file: Path, on_terminal: bool) -> dict[str, str]:
    """The environment that lets each part find the others."""
    env = dict(os.environ)
    env["MCPADMIN_DATA_DIR"] = str(options.data_dir)
    env["MCPADMIN_VALKEY_SOCKET"] = str(socket_file)
    env["MCPADMIN_PUBLIC_URL"] = public_url
    env["MCPADMIN_WORKERS"] = str(options.workers)
    env["MCPADMIN_DRAIN_SECONDS"] = str(DRAIN_SECONDS)
    env["PYTHONUNBUFFERED"] = "1"
    if options.labels:
        env["MCPADMIN_WORKER_LABELS"] = ",".join(options.labels)
    env.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    if on_terminal and _log_format(env) == "auto":
        env["MCPADMIN_LOG_FORMAT"] = "plain"
    written = [name for name, value in env.items() if name.startswith("MCPADMIN_") and os.environ.get(name) != value]
    env["MCPADMIN_SET_BY_UP"] = ",".join(sorted(written))
    return env


def _log_format(env: Mapping[str, str]) -> str:
    return env.get("MCPADMIN_LOG_FORMAT", "").strip().lower() or "auto"


class PartSupervisor:
    """Keeps one part running: starts it, reports when it is ready, restarts it with backoff when it dies."""

    def __init__(self, part: Part, env: Mapping[str, str], output: Output, on_start: Callable[[int], None]) -> None:
        self.part, self._env, self._output, self._on_start = part, env, output, on_start
        self.child: Child | None = None
        self.first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._deaths = 0
        self._failures = 0  # deaths, and starts that the system refused
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name=f"keep {self.part.name}")
        self._task.add_done_callback(self._give_up)

    def _give_up(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or not (problem := task.exception()):
            return
        if self.first_ready.done():
            self._output.say(f"{self.part.name} is not restarted: {problem!r}", level="error")
        else:
            self.first_ready.set_exception(problem)

    async def _keep(self) -> None:
        while True:
            try:
                child = self.child = Child(self.part, self._env, self._output)
            except OSError as problem:  # no process, memory or descriptor is free: often only for a moment
                delay = self._after_failure(f"{self.part.name} could not be started ({problem.strerror})", "")
            else:
                self._on_start(child.pid)
                waiting = asyncio.create_task(self._say_ready(child))
                status = await asyncio.shield(child.exited)  # a stop cancels this task, but not the future it waits for
                waiting.cancel()
                delay = self._after_death(child, status)
            await asyncio.sleep(delay)

    async def _say_ready(self, child: Child) -> None:
        task = asyncio.ensure_future(child.ready())
        try:
            await asyncio.wait_for(asyncio.shield(task), SLOW_SECONDS)
        except TimeoutError:
            words = f"{self.part.name} is not ready after {SLOW_SECONDS:.0f} s; still waiting"
            self._output.say(words, level="warning")
            await task
        finally:
            task.cancel()
        again = " again" if self.first_ready.done() else ""
        self._output.say(f"{self.part.name} ready{again} in {time.monotonic() - child.started:.2f} s")
        if not self.first_ready.done():
            self.first_ready.set_result(None)

    def _after_death(self, child: Child, status: int) -> float:
        """Report the death and return the delay before the next start."""
        if time.monotonic() - child.started > WELL_SECONDS:
            self._deaths = self._failures = 0
        self._deaths += 1
        last = " / ".join(child.last_lines()[-3:])
        delay = self._after_failure(f"{self.part.name} {process.describe_exit(status)}", last)
        if self.part.repair and not self.first_ready.done() and self._deaths == 2:
            self._output.say(self.part.repair(), level="warning")
        return delay

    def _after_failure(self, report: str, last: str) -> float:
        self._failures += 1
        if not self.first_ready.done() and self._failures >= MAX_FALSE_STARTS:
            raise StartProblem(
                f"{report} {self._failures} times without becoming ready", f"Last output: {last or '(none)'}"
            )
        # A night of failures is a thousand of them, and no float holds 2 to that power.
        delay = min(CEILING, FIRST_DELAY * 2 ** min(self._failures - 1, 10))
        words = f"{report}; restarting it in {delay:.1f} s" + (f"; last output: {last}" if last else "")
        self._output.say(words, level="warning")
        return delay

    async def stop(self, at_most: float, hurry: asyncio.Event) -> None:
        if self._task:
            self._task.cancel()
        if self.child:
            await self.child.stop(min(self.part.grace, at_most), hurry)


class Children:
    """Every child of `up`: reaps those that exit, notifies their supervisor, kills orphans inherited from a dead part."""

    def __init__(self, guard: OrphanGuard, on_end: Callable[[Part, int], None]) -> None:
        """`on_end` is called with each part that ended and its pid."""
        self.part_supervisors: list[PartSupervisor] = []
        self._jobs: dict[int, Child] = {}
        # not supervised: the browser that we start, and what the script that became `up` by exec had started
        self.outsiders = set(process.adopted({guard.pid}))
        self._guard, self._on_end = guard, on_end
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._sweep()

    def _children(self) -> dict[int, PartSupervisor]:
        return {
            part_supervisor.child.pid: part_supervisor
            for part_supervisor in self.part_supervisors
            if part_supervisor.child
        }

    def _reap(self) -> None:
        children, adopted = self._children(), False
        for pid, status in process.reap():
            if pid == self._guard.pid:
                self._guard.revive(status)
            elif pid in children:
                part_supervisor = children[pid]
                process.kill_group(pid, signal.SIGKILL)  # processes it left in its group
                self._guard.ended(pid)
                if part_supervisor.child:
                    part_supervisor.child.ended(status)
                self._on_end(part_supervisor.part, pid)
                self._kill_adopted()
            elif pid in self._jobs:
                self._guard.ended(pid)
                self._jobs.pop(pid).ended(status)
            else:
                adopted |= pid not in self.outsiders
            self.outsiders.discard(pid)
        if adopted:
            self._kill_adopted()  # what it had started is a child of ours now

    def _sweep(self) -> None:
        """A stdio server's grandchild may be reparented to us while its worker lives on. No signal reports that."""
        self._guard.restore()
        self._kill_adopted()
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _kill_adopted(self) -> list[int]:
        known = {*self._children(), *self._jobs, self._guard.pid, *self.outsiders}
        orphans = process.adopted(known)
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return orphans

    async def run(self, part: Part, env: Mapping[str, str], output: Output) -> Child:
        """Run a job: a child that ends on its own. `stop` ends it too."""
        child = Child(part, env, output)
        self._jobs[child.pid] = child
        self._guard.started(child.pid)
        await asyncio.shield(child.exited)
        return child

    async def stop(self, order: Iterable[Collection[str]], hurry: asyncio.Event) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        await asyncio.gather(*(job.stop(job.part.grace, hurry) for job in list(self._jobs.values())))
        for roles in order:
            stage = [part_supervisor for part_supervisor in self.part_supervisors if part_supervisor.part.role in roles]
            reserve = 0 if "valkey" in roles else LAST_SECONDS
            at_most = max(0.1, deadline - reserve - time.monotonic())
            await asyncio.gather(*(part_supervisor.stop(at_most, hurry) for part_supervisor in stage))
        self._loop.remove_signal_handler(signal.SIGCHLD)
        if self._sweeping:
            self._sweeping.cancel()
        # Until two rounds in a row find nothing, or for 1 s: the orphans of a killed orphan reach us a moment later.
        deadline, quiet = time.monotonic() + 1.0, 0
        while quiet < 2 and time.monotonic() < deadline:
            quiet = 0 if self._kill_adopted() else quiet + 1
            await asyncio.sleep(0.01)
            list(process.reap())


class Supervisor:
    """One run of `up`: start the parts in order, keep them running, stop them in order.

    Owns the lock and the listening socket when `run` is called and releases both before it returns."""

    def __init__(
        self,
        options: Options,
        output: Output,
        lock_descriptor: int,
        listening: socket.socket,
        *,
        contained: bool = False,
    ) -> None:
        """`contained`: see unprivileged.Privileges."""
        self._options, self._output, self._lock, self._listening = options, output, lock_descriptor, listening
        self._contained = contained
        self._port = listening.getsockname()[1]
        self._url = os.environ.get("MCPADMIN_PUBLIC_URL", "").rstrip("/") or url_of(options.host, self._port)
        self._valkey_dir = options.data_dir / "valkey"
        self._embedded = not hardening.variables.get("REDIS_URL")
        self._reports, self._reporting = os.pipe()
        os.set_blocking(self._reporting, False)
        self._prepared, self._preparing = os.pipe()

    async def run(self) -> None:
        """Returns after an orderly stop. Raises StartProblem when the start fails."""
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        signals = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: keep running after the terminal closes
            signals.append(signal.SIGHUP)
        for number in signals:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)
        process.become_subreaper()
        self._guard = OrphanGuard(self._options.data_dir / preflight.LOCK, self._valkey_dir, self._lock)
        self._children = Children(self._guard, self._part_ended)
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

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            self._output.say("stopping immediately")
            self._hurry.set()
            return
        self._output.say(f"{signal.Signals(number).name}: stopping (a second signal stops immediately)")
        self._stop.set()

    def _part_ended(self, part: Part, pid: int) -> None:
        """Report a worker's end to the web processes. If none runs, the next one to start reads it from the pipe."""
        if part.role == "worker" and not self._stop.is_set():
            try:
                os.write(self._reporting, f"{node_of(part.name)} {pid}\n".encode())
            except BlockingIOError:  # the next worker to start, or another one, notices
                self._output.say(f"the end of {part.name} could not be recorded", level="warning")

    async def _bring_up(self) -> None:
        with preflight.usable(self._options.data_dir):
            if self._embedded:
                self._valkey_dir.mkdir(mode=0o700, exist_ok=True)
                socket_file = valkey.choose_socket(self._valkey_dir)
                self._passwords = valkey.write_users(self._valkey_dir)
            else:
                recorded = os.environ.get("MCPADMIN_VALKEY_SOCKET") or valkey.recorded_socket(self._valkey_dir)
                socket_file, self._passwords = Path(recorded), {}
        self._env = environment(self._options, self._url, socket_file, os.isatty(1))
        preparing = asyncio.create_task(self._prepare(socket_file))
        if not (self._options.data_dir / STATIC_MANIFEST).exists():
            await preparing  # the settings of a web process depend on whether there are collected files
        listening, secrets = self._listening.fileno(), self._secrets("web")
        web = web_parts(self._options.web_processes, listening, self._reports, self._prepared, secrets)
        workers = worker_parts(self._options.workers, self._prepared, self._secrets("worker"))
        starting = self._start(*web, *workers)
        prepared, _ = await asyncio.gather(preparing, starting)
        self._welcome(prepared)

    def _secrets(self, role: str) -> dict[str, str]:
        return secrets_of(role, f"{role}:{self._passwords[role]}" if self._embedded else "")

    async def _prepare(self, socket_file: Path) -> dict[str, Any]:
        """Start Valkey, run `manage.py prepare`, then let the other parts serve. Returns the findings of `prepare`."""
        embedded = [valkey_part(self._valkey_dir, socket_file, self._passwords["up"])] if self._embedded else []
        _, found = await asyncio.gather(self._start(*embedded), self._run_preparation())
        os.write(self._preparing, b"\n")
        return found

    async def _run_preparation(self) -> dict[str, Any]:
        secrets = self._secrets(valkey.COMMANDS)
        part = self._without_privileges(preparing_part(secrets))
        job = await self._children.run(part, self._env, self._output)
        found = json.loads(job.said or b"{}")
        if "problem" in found:
            raise StartProblem(*found["problem"])
        if job.exited.result() != 0 or not job.said:
            last = " / ".join(job.last_lines()[-3:])
            end = process.describe_exit(job.exited.result())
            raise StartProblem(f"the preparation {end}", f"Last output: {last or '(none)'}")
        return found  # written by mcpadmin/management/commands/prepare.py

    def _without_privileges(self, part: Part) -> Part:
        """Workers keep theirs: they start stdio servers, each as a user of its own."""
        return replace(part, renounces=self._contained and part.role != "worker")

    async def _start(self, *what: Part) -> None:
        part_supervisors = [
            PartSupervisor(part, self._env, self._output, self._guard.started)
            for part in map(self._without_privileges, what)
        ]
        self._children.part_supervisors += part_supervisors
        for part_supervisor in part_supervisors:
            part_supervisor.start()
        await asyncio.gather(*(part_supervisor.first_ready for part_supervisor in part_supervisors))

    def _welcome(self, prepared: dict[str, Any]) -> None:
        self._warn()
        for warning in prepared["warnings"]:
            self._output.say(f"warning: {warning}")
        if why := prepared["held"]:
            self._output.say(
                f"on hold, so no session is opened: {why} Release it on the page, or with {PROGRAM} release_instance"
            )
        if link := prepared["setup_link"]:
            self._output.say("no administrator exists yet; create the first one here (works once, for 24 hours):")
            self._output.say(f"  {link}")
        preflight.note_url(self._lock, self._url)
        self._output.say(f"mcpadmin is ready after {_since_command():.1f} s: {self._url}")
        if self._options.browser:
            self._children.outsiders.add(_open_browser(self._url))

    def _warn(self) -> None:
        if os.geteuid() == 0 and not self._contained:
            self._output.say(
                "warning: web, workers and Valkey run as root; use --user to run them as an unprivileged user"
            )
        if self._options.host in LOOPBACK:
            return
        url = urlsplit(self._url)
        if url.scheme == "http" and url.hostname in LOOPBACK:  # mcpadmin.checks warns of any other host
            self._output.say(
                "warning: passwords and secrets cross the network unencrypted; put a TLS proxy in front of mcpadmin and set MCPADMIN_PUBLIC_URL=https://…"
            )
        if not os.environ.get("MCPADMIN_PUBLIC_URL"):
            self._output.say(
                f"warning: requests from other machines are refused until MCPADMIN_PUBLIC_URL is the address they use (now {self._url})"
            )

    async def _shut_down(self) -> None:
        await self._children.stop(STOP_ORDER, self._hurry)
        self._listening.close()
        os.close(self._reports)
        os.close(self._reporting)
        os.close(self._prepared)
        os.close(self._preparing)
        if self._embedded and self._valkey_dir.exists():
            with contextlib.suppress(OSError):  # the next start removes it, or says why it cannot
                valkey.forget_socket(self._valkey_dir)
        self._guard.dismiss()
        preflight.release_lock(self._options.data_dir, self._lock)


def _since_command() -> float:
    """Seconds since the command was typed, including Python's own start."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError):
        return time.monotonic() - _IMPORTED


def _open_browser(url: str) -> int:
    """Use a separate process: a text browser must not take over the terminal, a graphical one must outlive us."""
    env = {**os.environ, process.KEEP_MARKER: "1"}
    quiet = subprocess.DEVNULL
    argv = [sys.executable, "-m", "webbrowser", url]
    return subprocess.Popen(  # noqa: S603 - fixed arguments, no shell
        argv, env=env, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    ).pid


def supervise(options: Options) -> None:
    """Run everything from giving up root to the end of the last part. Raises StartProblem."""
    preflight.refuse_foreign(options.data_dir)
    needs_root = os.geteuid() == 0 and 0 < options.port < FIRST_FREE_PORT
    listening = preflight.listen(options.host, options.port) if needs_root else None
    privileges = unprivileged.drop(options.data_dir, options.user)
    init.run_below_init()
    if privileges.dropped:
        options = replace(options, browser=False)  # the display is not this user's
    preflight.prepare_data_dir(options.data_dir)
    lock_descriptor = preflight.acquire_lock(options.data_dir)
    output = Output(as_json=_log_format(os.environ) == "json")
    for line in (*privileges.lines, *preflight.tighten(options.data_dir)):
        output.say(line)
    try:
        listening = listening or preflight.listen(options.host, options.port)
    except StartProblem:
        preflight.release_lock(options.data_dir, lock_descriptor)
        raise
    try:
        asyncio.run(Supervisor(options, output, lock_descriptor, listening, contained=privileges.contained).run())
        output.say("stopped")
    finally:
        output.close()


def main(arguments: Sequence[str]) -> int:
    parser = ArgumentParser(prog=f"{PROGRAM} up", description=HELP)
    add_arguments(parser)
    try:
        preflight.check_python()
        options = Options.parse(parser.parse_args(arguments))
        check_addresses()
        supervise(options)
    except StartProblem as problem:
        words = f"mcpadmin cannot run: {problem}"
        as_json = _log_format(os.environ) == "json"
        sys.stderr.write(f"{process.foreign_line('up', words, 'error') if as_json else words}\n")
        return 1
    except KeyboardInterrupt:  # before the signals of a run are caught
        return 128 + signal.SIGINT
    return 0
