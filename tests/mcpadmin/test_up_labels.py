"""`up --label`: the workers carry it, and what is no label is refused in words."""

from pathlib import Path
from typing import Any

import pytest

from mcpadmin.up.options import Options
from mcpadmin.up.parts import environment
from mcpadmin.up.problems import StartProblem


def options(*labels: str) -> Options:
    given: dict[str, Any] = {"host": "127.0.0.1", "port": 8000, "workers": 1, "browser": False, "label": list(labels)}
    return Options.parse(given, Path("/tmp/data"))


def test_the_workers_learn_the_labels_from_their_environment() -> None:
    env = environment(options("gpu", "disk-1"), "http://127.0.0.1:8000", Path("/tmp/v.sock"), on_terminal=False)
    assert env["MCPADMIN_WORKER_LABELS"] == "gpu,disk-1"


def test_without_the_option_a_label_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPADMIN_WORKER_LABELS", "gpu")
    env = environment(options(), "http://127.0.0.1:8000", Path("/tmp/v.sock"), on_terminal=False)
    assert env["MCPADMIN_WORKER_LABELS"] == "gpu"


@pytest.mark.parametrize("label", ["", "two words", "a,b", "x" * 61, "é"])
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(StartProblem, match="is no label"):
        options(label)
