"""The command line of `manage.py up`, without Django, so that the supervisor process stays small."""

import os
import re
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from dataclasses import dataclass
from pathlib import Path

from mcpadmin.installation import default_data_dir

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - how to reach each from this machine
WEB_PROCESSES = "MCPADMIN_WEB_PROCESSES"
HELP = "Run mcpadmin: the web server, the workers and (unless REDIS_URL is set) an embedded Valkey."


class StartProblem(Exception):
    """`up` cannot start or continue. The text is one line: what is wrong, then what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what.rstrip('.')}. {remedy}")
        self.what, self.remedy = what, remedy


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--host", default=os.environ.get("MCPADMIN_HOST") or "127.0.0.1", help="address to listen on (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (%(default)s); 0 picks a free one")
    parser.add_argument(
        "--web-processes",
        type=int,
        help=f"number of web processes on that port ({_escaped(os.environ.get(WEB_PROCESSES) or '1')})",
    )
    parser.add_argument("--workers", type=int, default=1, help="number of worker processes (%(default)s)")
    parser.add_argument("--label", action="append", metavar="LABEL", help="label for the workers; repeatable")
    parser.add_argument(
        "--user",
        default=os.environ.get("MCPADMIN_USER", ""),
        help="the user to run as, when started by root; `root` stays root",
    )
    parser.add_argument("--data-dir", help=f"where all data lives ({_escaped(str(data_dir(None)))})")
    parser.add_argument("--browser", action=BooleanOptionalAction, default=True, help="open the page in a browser")


def _escaped(text: str) -> str:
    """Escape text for a help text, in which a percent sign starts a placeholder."""
    return text.replace("%", "%%")


def data_dir(given: str | None) -> Path:
    return Path(given or os.environ.get("MCPADMIN_DATA_DIR") or default_data_dir()).resolve()


@dataclass(frozen=True)
class Options:
    host: str
    port: int  # 0 lets the system choose a free one
    workers: int
    data_dir: Path
    browser: bool
    labels: tuple[str, ...] = ()
    web_processes: int = 1
    user: str = ""

    @classmethod
    def parse(cls, given: Namespace) -> "Options":
        if not 0 <= given.port <= 65_535:
            raise StartProblem(f"{given.port} is not a valid port", "Set --port to a number from 1 to 65535.")
        if not 1 <= given.workers <= 64:
            raise StartProblem(f"{given.workers} workers cannot be run", "Set --workers to a number from 1 to 64.")
        if wrong := [label for label in given.label or [] if not LABEL.fullmatch(label)]:
            raise StartProblem(
                f"{wrong[0]!r} is not a valid label", "Use only letters, digits, dots, hyphens and underscores."
            )
        return cls(
            host=given.host.strip("[]"),
            port=given.port,
            workers=given.workers,
            data_dir=data_dir(given.data_dir),
            browser=given.browser and _has_display(),
            labels=tuple(given.label or ()),
            web_processes=_web_processes(given.web_processes),
            user=given.user,
        )


def _web_processes(given: int | None) -> int:
    text, name = (os.environ.get(WEB_PROCESSES) or "1", WEB_PROCESSES) if given is None else (given, "--web-processes")
    try:
        number = int(text)
    except ValueError:
        raise StartProblem(
            f"{name} is {text!r}, which is not a whole number", "Correct it, or unset it to use the default."
        ) from None
    if not 1 <= number <= 64:
        raise StartProblem(f"{number} web processes cannot be run", f"Set {name} to a number from 1 to 64.")
    return number


def _has_display() -> bool:
    return os.isatty(1) and bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.uname().sysname == "Darwin"
    )


def url_of(host: str, port: int) -> str:
    """The URL for a browser on this machine. It reaches a wildcard host through loopback."""
    name = WILDCARDS.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
