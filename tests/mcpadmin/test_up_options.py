"""The options of `up`: labels reach the workers, the number of web processes comes from the command or the environment."""

import os
from argparse import ArgumentParser
from pathlib import Path

import pytest

from mcpadmin import installation
from mcpadmin.up.options import Options, StartProblem, add_arguments
from mcpadmin.up.supervisor import environment, web_parts


def options(*labels: str) -> Options:
    return parsed(*(f"--label={label}" for label in labels))


def parsed(*words: str) -> Options:
    parser = ArgumentParser()
    add_arguments(parser)
    return Options.parse(parser.parse_args(["--no-browser", "--data-dir", "/tmp/data", *words]))


def test_the_workers_learn_the_labels_from_their_environment() -> None:
    env = environment(options("gpu", "disk-1"), "http://127.0.0.1:8000", Path("/tmp/v.sock"), on_terminal=False)
    assert env["MCPADMIN_WORKER_LABELS"] == "gpu,disk-1"


def test_without_the_option_a_label_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPADMIN_WORKER_LABELS", "gpu")
    env = environment(options(), "http://127.0.0.1:8000", Path("/tmp/v.sock"), on_terminal=False)
    assert env["MCPADMIN_WORKER_LABELS"] == "gpu"


@pytest.mark.parametrize("label", ["", "two words", "a,b", "x" * 61, "é"])
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(StartProblem, match="is not a valid label"):
        options(label)


def test_the_number_of_web_processes_is_read_from_the_environment_and_the_option_goes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert parsed().web_processes == 1
    monkeypatch.setenv("MCPADMIN_WEB_PROCESSES", "3")
    assert parsed().web_processes == 3
    assert parsed("--web-processes", "2").web_processes == 2


def test_a_number_of_web_processes_that_cannot_be_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartProblem, match=r"0 web processes cannot be run\. Set --web-processes to"):
        parsed("--web-processes", "0")
    monkeypatch.setenv("MCPADMIN_WEB_PROCESSES", "0")
    with pytest.raises(StartProblem, match=r"0 web processes cannot be run\. Set MCPADMIN_WEB_PROCESSES to"):
        parsed()
    monkeypatch.setenv("MCPADMIN_WEB_PROCESSES", "many")
    with pytest.raises(StartProblem, match="MCPADMIN_WEB_PROCESSES is 'many', which is not a whole number"):
        parsed()


def test_the_help_is_shown_whatever_the_data_directory_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPADMIN_DATA_DIR", "/srv/100%full")
    monkeypatch.setenv("MCPADMIN_HOST", "%s")
    parser = ArgumentParser()
    add_arguments(parser)
    assert "/srv/100%full" in "".join(parser.format_help().split())


def test_one_web_process_is_called_web_and_two_are_numbered() -> None:
    assert [part.name for part in web_parts(1, 3, 4, 5, {})] == ["web"]
    assert [part.name for part in web_parts(2, 3, 4, 5, {})] == ["web1", "web2"]


def test_a_package_whose_user_has_no_home_has_a_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare number in a container, without an account and HOME."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(installation, "IS_PACKAGE", True)
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert installation.default_data_dir() == Path("/var/lib/mcpadmin")
    assert parsed().data_dir == Path("/tmp/data")
