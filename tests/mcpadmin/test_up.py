"""`manage.py up` works as a user runs it: real processes in a private data directory."""

import json
import os
import re
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.tools.prepared import prepare
from tests.tools.stack import ROOT, Stack, proportional_mib

pytestmark = [pytest.mark.up, pytest.mark.integration]
MakeStack = Callable[..., Stack]
GONE_SECONDS = 10.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One product with two workers, for tests that leave it as they found it. It makes the first start in an empty data
    directory; the other products start in a prepared one."""
    warned_of = {"MCPADMIN_WIRE_DAYS": "30"}
    product = Stack(tmp_path_factory.mktemp("running"), "--port", "0", "--workers", "2", env=warned_of)
    try:
        yield product.start()
    finally:
        product.stop()


@pytest.fixture(scope="module")
def often_stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its data directory has a long and awkward name, and its pages an IPv6 address."""
    directory = prepare(tmp_path_factory.mktemp("stopped") / ("long and spaced " * 6))
    product = Stack(directory, "--port", "0", "--host", "::1")
    yield product
    product.close()


@pytest.fixture
def product(often_stopped: Stack, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A running product for tests that stop it in different ways. Restarts it if the previous test left it stopped."""
    if not often_stopped.is_running:
        start_again(often_stopped)
    yield often_stopped
    if request.node.report_of_call.failed:
        often_stopped.close()


def start_again(product: Stack) -> None:
    product.lines.clear()
    product.start()


def survivors(processes: list[psutil.Process]) -> list[psutil.Process]:
    """The processes still alive after ten seconds. A zombie that a slow init has not reaped counts as gone."""
    deadline = time.monotonic() + GONE_SECONDS
    while (alive := [found for found in processes if is_alive(found)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def running_files(data_dir: Path) -> list[str]:
    """Sockets, pid and lock files, which only a running product may have."""
    names = [path for path in data_dir.rglob("*") if path.is_socket() or path.suffix in {".pid", ".lock", ".sock"}]
    return [str(path.relative_to(data_dir)) for path in names]


def readable_by_others(data_dir: Path) -> list[str]:
    """The top-level entries of the data directory that contain something accessible to other users."""
    found = [path for path in data_dir.rglob("*") if path.stat().st_mode & 0o077]
    return sorted({path.relative_to(data_dir).parts[0] for path in found})


def left_behind(product: Stack) -> list[str]:
    deadline = time.monotonic() + GONE_SECONDS
    while (files := running_files(product.data_dir)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return files


def short_directory(product: Stack) -> Path:
    """Where the sockets are, because their paths in this data directory would be too long."""
    return Path((product.data_dir / "valkey" / "socket-path").read_text()).parent


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.status, response.read().decode()


def test_every_part_is_said_ready_then_the_setup_link_then_the_address(running: Stack) -> None:
    product = running
    said = [line.partition("|")[2].strip() for line in product.output.splitlines() if line.startswith("up ")]
    ready = [line.split()[0] for line in said if re.search(r" ready in \d+\.\d\d s", line)]
    assert ready[0] == "valkey"
    assert set(ready[-3:]) == {"web", "worker-1", "worker-2"}
    assert "/setup/" in said[-2]
    assert said[-1].endswith(product.base_url)
    assert get(product.setup_link)[0] == 200
    assert json.loads(get(f"{product.base_url}/readyz")[1])["ready"] is True
    assert product.manage("setup_link").startswith(f"{product.base_url}/setup/")
    assert product.data_dir.stat().st_mode & 0o777 == 0o700
    assert readable_by_others(product.data_dir) == ["static"]  # public by nature


def test_what_the_checks_of_the_installation_warn_of_is_said(running: Stack) -> None:
    assert "warning: MCPADMIN_WIRE_DAYS no longer has an effect: the upgrade copied its value" in running.output


def test_the_supervisor_stays_small_because_it_never_loads_django(running: Stack) -> None:
    assert proportional_mib(running.process.pid) < 30
    code = "import sys, mcpadmin.up.supervisor; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    # servers.secret masks secrets in the output of `up` and uses only the standard library
    heavy = {
        name for name in loaded.stdout.split() if name.partition(".")[0] in {"django", "celery", "sessions", "servers"}
    }
    assert heavy == {"servers", "servers.secret"}


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGKILL))],
    ids=lambda number: number.name,
)
def test_after_each_way_to_stop_nothing_is_left_and_the_next_start_works(
    product: Stack, number: signal.Signals
) -> None:
    family, short = product.family(), short_directory(product)
    assert len(family) >= 5
    product.send_signal(number)
    assert product.process.wait(GONE_SECONDS) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    assert survivors(family) == []
    assert left_behind(product) == []
    assert not short.exists()
    start_again(product)
    assert "killed" not in product.output
    assert get(f"{product.base_url}/healthz") == (200, "ok\n")


def test_the_next_start_may_follow_a_kill_at_once(product: Stack) -> None:
    product.send_signal(signal.SIGKILL)
    product.process.wait(GONE_SECONDS)
    start_again(product)
    assert get(f"{product.base_url}/healthz") == (200, "ok\n")


def test_a_kill_during_the_start_leaves_nothing_either(make_stack: MakeStack) -> None:
    product = make_stack()
    product.launch()
    product.wait_for(re.compile("valkey ready"))
    family = product.family()
    product.send_signal(signal.SIGKILL)
    product.process.wait(GONE_SECONDS)
    assert survivors(family) == []
    assert left_behind(product) == []


@pytest.mark.parametrize(
    ("part", "words"),
    [("web", "daphne"), ("worker-2", "worker2@"), ("valkey", "valkey-server")],
)
def test_a_part_that_is_killed_is_started_again_and_said_so(running: Stack, part: str, words: str) -> None:
    seen = len(running.lines)
    killed = running.part(words)[0].pid
    os.kill(killed, signal.SIGKILL)
    running.wait_for(re.compile(rf"{part} killed by SIGKILL; restarting it in \d"), since=seen)
    assert get(f"{running.base_url}/healthz") == (200, "ok\n")  # may wait for a web process, but is never refused
    running.wait_for(re.compile(rf"{part} ready again in"), seconds=60, since=seen)
    assert running.part(words)[0].pid != killed


def test_a_second_up_on_the_same_data_is_told_who_is_first(running: Stack) -> None:
    second = Stack(running.data_dir)
    second.launch()
    assert second.process.wait(60) == 1
    assert_one_line(second, f"already running in {running.data_dir} (process {running.process.pid})")
    assert get(f"{running.base_url}/healthz") == (200, "ok\n")


def test_a_busy_port_is_one_line_and_status_1(make_stack: MakeStack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        product = make_stack("--port", str(port))
        product.launch()
        assert product.process.wait(60) == 1
    assert_one_line(product, f"port {port} on 127.0.0.1 is in use")
    assert running_files(product.data_dir) == []


def test_a_data_directory_that_cannot_be_used_is_one_line_and_status_1(make_stack: MakeStack, tmp_path: Path) -> None:
    blocked = tmp_path / "data"
    blocked.write_text("a file where the directory should be")
    product = make_stack(data_dir=blocked)
    product.launch()
    assert product.process.wait(60) == 1
    assert_one_line(product, f"the data directory {blocked} cannot be used")


def test_a_folder_of_something_else_is_refused_before_anything_in_it_changes(
    make_stack: MakeStack, tmp_path: Path
) -> None:
    foreign = tmp_path / "site"
    for name in ("beat/schedule", "static/page.css", "notes.txt"):
        (foreign / name).parent.mkdir(parents=True, exist_ok=True)
        (foreign / name).touch(0o644)
    before = {path: path.stat().st_mode for path in (foreign, *foreign.rglob("*"))}
    product = make_stack(data_dir=foreign)
    product.launch()
    assert product.process.wait(60) == 1
    assert_one_line(product, f"{foreign} is not empty, and nothing in it belongs to mcpadmin. Use a new or empty")
    assert {path: path.stat().st_mode for path in (foreign, *foreign.rglob("*"))} == before


def test_a_file_of_the_data_directory_that_cannot_be_replaced_is_one_line_and_status_1(make_stack: MakeStack) -> None:
    product = make_stack()
    for part in ("valkey", "valkey/users.acl"):  # as one that belongs to root is for an ordinary user
        (product.data_dir / part).mkdir(mode=0o700, exist_ok=True)
    product.launch()
    assert product.process.wait(60) == 1
    assert_one_line(product, f"the data directory {product.data_dir} cannot be used (Is a directory")


def test_a_redis_that_anyone_could_reach_is_refused(make_stack: MakeStack) -> None:
    product = make_stack(env={"REDIS_URL": "redis://cache.example:6379/0"})
    product.launch()
    assert product.process.wait(60) == 1
    assert_one_line(product, "no password")


def test_a_variable_that_cannot_be_read_is_named_in_one_line(make_stack: MakeStack) -> None:
    product = make_stack(env={"MCPADMIN_INBOX_SECONDS": "10m", "REDIS_URL": "redis://127.0.0.1:9/0"})
    product.launch()
    assert product.process.wait(60) == 1
    assert_one_line(product, "MCPADMIN_INBOX_SECONDS is '10m', which is not a number. Correct it")


def test_pages_are_served_on_an_ipv6_address(product: Stack) -> None:
    assert product.base_url.startswith("http://[::1]:")
    assert get(product.setup_link)[0] == 200


def assert_one_line(product: Stack, words: str) -> None:
    deadline = time.monotonic() + 5
    while words not in product.output and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(product.lines) == 1, product.output
    assert product.lines[0].startswith("mcpadmin cannot run: ")
    assert words in product.lines[0]


def test_a_data_directory_with_a_long_and_awkward_name_works(product: Stack) -> None:
    assert json.loads(get(f"{product.base_url}/readyz")[1])["ready"] is True
    assert short_directory(product).exists()


def test_impatience_ends_everything_at_once(product: Stack) -> None:
    family = product.family()
    os.kill(product.worker_pids()[0], signal.SIGSTOP)  # a stopped worker cannot drain
    product.send_signal(signal.SIGINT)
    product.wait_for(re.compile("SIGINT: stopping"))
    product.send_signal(signal.SIGINT)
    assert product.process.wait(5) == 0
    assert survivors(family) == []
    assert left_behind(product) == []


@pytest.mark.long
def test_a_worker_that_cannot_stop_is_killed_within_ten_seconds(product: Stack) -> None:
    family = product.family()
    os.kill(product.worker_pids()[0], signal.SIGSTOP)
    product.send_signal(signal.SIGTERM)
    assert product.process.wait(GONE_SECONDS) == 0
    assert re.search(r"worker killed because it did not exit within [6-9]\.\d s", product.output)
    assert survivors(family) == []


@pytest.mark.long
def test_parts_load_during_the_preparation_and_serve_only_after_it(often_stopped: Stack) -> None:
    product = often_stopped
    product.close()
    product.lines.clear()
    with sqlite3.connect(product.data_dir / "mcpadmin.sqlite3", isolation_level=None) as database:
        database.execute("BEGIN IMMEDIATE")  # the preparation waits for its turn to write
        product.launch()
        wait_until_idle(product, "daphne")
        wait_until_idle(product, "mcpadmin.worker")
        assert not re.search("(database|web|worker) ready", product.output)
        database.execute("ROLLBACK")
    product.wait_for(re.compile("mcpadmin is ready"), seconds=60)
    said = [re.search(r"(database|web|worker) ready", line) for line in product.lines]
    assert next(found[1] for found in said if found) == "database"


def wait_until_idle(product: Stack, word: str) -> None:
    """Until the part has loaded everything: it sleeps, and uses no processor time for half a second."""
    used, since, deadline = -1.0, time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since < 0.5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        found = next(iter(product.part(word)), None)
        now = found.cpu_times().user if found else -1.0
        if found is None or now != used or found.status() != psutil.STATUS_SLEEPING:
            used, since = now, time.monotonic()


SEAL_ONE = """
from servers.crypto import seal
from servers.models import Server, ServerValue
server = Server.objects.create(slug="s", name="S", transport="stdio", command="true", enabled=False)
value = ServerValue(server=server, kind="environment", name="TOKEN", secret=True)
value.sealed, value.key_id = seal("v", table="servervalue", uid=value.uid, field="sealed")
value.save()
"""


OPEN_ONE = """
from servers.crypto import SealError
from servers.models import ServerValue
from servers.registration.values import reveal
try:
    reveal(ServerValue.objects.get())
except SealError as problem:
    print(problem)
"""


@pytest.mark.long
def test_where_a_key_is_lost_for_good_another_one_of_its_name_lets_mcpadmin_start(make_stack: MakeStack) -> None:
    product = make_stack()
    product.shell(SEAL_ONE)
    ring = product.data_dir / "keyring.json"
    lost = json.loads(ring.read_text())["current"]
    keys = {name: b64encode(secrets.token_bytes(32)).decode() for name in ("new", lost)}
    ring.write_text(json.dumps({"current": "new", "keys": keys}))
    product.start()
    assert "Enter the value again." in product.shell(OPEN_ONE)


@pytest.mark.long
def test_a_lost_key_ring_is_said_before_anything_serves(make_stack: MakeStack) -> None:
    product = make_stack()
    product.shell(SEAL_ONE)
    (product.data_dir / "keyring.json").unlink()
    product.launch()
    assert product.process.wait(60) == 1
    problem = [line for line in product.lines if line.startswith("mcpadmin cannot run: ")]
    assert len(problem) == 1
    assert "encrypted with key" in problem[0]
    assert "backup" in problem[0]
    assert "docs/configuration.md (Keys)" in problem[0]
    assert "web" not in product.output
    assert running_files(product.data_dir) == []
