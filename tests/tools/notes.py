"""Reports at the end of a run what was skipped and why. Set-up scripts and tests both write such notes.

Each writer owns one file in tests/.notes/, and `make test` prints them all at its end. A file beside it counts the
passed, skipped and failed tests, another names those that failed.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

NOTES = Path(__file__).resolve().parents[1] / ".notes"


def write(author: str, lines: list[str]) -> None:
    """Replace the notes of `author`. An empty list removes the file."""
    file = NOTES / f"{author}.txt"
    if not lines:
        file.unlink(missing_ok=True)
        return
    NOTES.mkdir(exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def read_all() -> list[str]:
    return [line for file in sorted(NOTES.glob("*.txt")) for line in file.read_text().splitlines()]


def write_counts(author: str, stats: dict[str, list[object]]) -> None:
    counts = {word: len(stats.get(word, [])) for word in ("passed", "skipped", "failed", "error")}
    NOTES.mkdir(exist_ok=True)
    (NOTES / f"{author}.json").write_text(json.dumps({word: number for word, number in counts.items() if number}))


def write_failed_tests(author: str, stats: dict[str, list[pytest.TestReport]]) -> None:
    failed = [report for word in ("failed", "error") for report in stats.get(word, [])]
    ids = list(
        dict.fromkeys(report.nodeid for report in sorted(failed, key=lambda report: report.start))
    )  # as they ran
    (NOTES / f"{author}.failed.json").write_text(json.dumps(ids))


def _reason(report: pytest.TestReport) -> str:
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")


def skipped_lines(reports: list[pytest.TestReport]) -> list[str]:
    counted = Counter(_reason(report) for report in reports)
    return [f"{count} test{'s'[: count > 1]} skipped: {reason}" for reason, count in counted.items()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--notes-as", default="", help="leave the reasons of skipped tests to the caller, under this name")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = skipped_lines(terminalreporter.stats.get("skipped", []))
    if author := config.getoption("--notes-as"):
        write(author, lines)
        write_counts(author, terminalreporter.stats)
        write_failed_tests(author, terminalreporter.stats)
        return
    for line in lines:
        terminalreporter.write_line(line, yellow=True)
