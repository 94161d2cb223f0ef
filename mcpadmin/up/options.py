import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcpadmin.up.problems import StartProblem

LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where each is reached from this machine


@dataclass(frozen=True)
class Options:
    host: str
    port: int  # 0 asks the system for a free one
    workers: int
    data_dir: Path
    browser: bool
    labels: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: dict[str, Any], data_dir: Path) -> "Options":
        if not 0 <= given["port"] <= 65_535:
            raise StartProblem(f"{given['port']} is no port number", "Give --port a number from 1 to 65535.")
        if not 1 <= given["workers"] <= 64:
            raise StartProblem(f"{given['workers']} workers cannot be run", "Give --workers a number from 1 to 64.")
        if wrong := [label for label in given.get("label") or [] if not LABEL.fullmatch(label)]:
            raise StartProblem(
                f"{wrong[0]!r} is no label", "Give --label letters, digits, dots, hyphens and underscores."
            )
        return cls(
            host=given["host"].strip("[]"),
            port=given["port"],
            workers=given["workers"],
            data_dir=data_dir,
            browser=given["browser"] and _has_display(),
            labels=tuple(given.get("label") or ()),
        )


def _has_display() -> bool:
    return os.isatty(1) and bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.uname().sysname == "Darwin"
    )


def url_of(host: str, port: int) -> str:
    """The address a browser on this machine uses; a wildcard host is reached by loopback."""
    name = WILDCARDS.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
