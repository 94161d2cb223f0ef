"""Long fault run: `up` is ended by each signal at a random moment, repeatedly, on the same data directory.

Each time, all its processes must be gone within 10 s, and the next start must succeed. `make faults`
"""

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.tools.stack import Stack

ROUNDS = 4
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
pytestmark = [pytest.mark.up, pytest.mark.slow]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interrupted")


def left_over(family: list[psutil.Process], data_dir: Path) -> list[str]:
    """Processes of the family, and any other whose command line names the data directory."""
    alive = [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    others = [p for p in psutil.process_iter(["cmdline"]) if str(data_dir) in " ".join(p.info["cmdline"] or [])]
    return sorted({f"{process.pid} {process.name()}" for process in [*alive, *others]})


def await_nothing_left(family: list[psutil.Process], data_dir: Path, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while (rest := left_over(family, data_dir)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert rest == []


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_a_start_that_is_ended_at_any_moment_leaves_nothing_and_the_next_one_comes_up(
    data_dir: Path, number: signal.Signals, turn: int
) -> None:
    moment = random.Random(f"{number}{turn}").uniform(0.0, 4.0)
    interrupted = Stack(data_dir)
    interrupted.launch()
    time.sleep(moment)
    family = interrupted.family()
    interrupted.send_signal(number)
    interrupted.process.wait(15)
    await_nothing_left(family, data_dir)

    following = Stack(data_dir).start()
    family = following.family()
    assert following.stop() == 0
    await_nothing_left(family, data_dir)
