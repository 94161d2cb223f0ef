"""Management commands, and `up`, which runs without Django."""

import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Final, NoReturn

from mcpadmin.command_line import streams
from mcpadmin.command_line.arguments import without_tokens
from mcpadmin.installation import PROGRAM

#: the parts of INSTALLED_APPS that have commands; the settings, which name all, create key files
_WITH_COMMANDS: Final = (
    "mcpadmin",
    "servers",
    "channels",
    "allauth.account",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django.core",
)
_USAGE: Final = 2
_SETTINGS: Final = "mcpadmin.settings"


def run(argv: list[str], others: Sequence[str] = ()) -> None:
    """`argv` starts with the program's name. `others`: commands that the caller runs itself."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", _SETTINGS)
    if argv[1:2] == ["up"]:
        from mcpadmin.up.supervisor import main as up  # noqa: PLC0415 - other commands need none of it

        sys.exit(up(argv[2:]))
    from mcpadmin.up import options, preflight, unprivileged  # noqa: PLC0415 - as above

    if os.environ["DJANGO_SETTINGS_MODULE"] == _SETTINGS:
        _refuse_unknown(argv[1:2], others)
    data_dir = options.data_dir(None)
    os.environ["MCPADMIN_DATA_DIR"] = str(data_dir)  # the owner's default may differ
    try:
        preflight.refuse_foreign(data_dir)  # before the settings create key files there
    except options.StartProblem as problem:
        _end(problem.what, problem.remedy)
    unprivileged.act_as_owner(data_dir)
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - as above
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - as above
    from django.db import DatabaseError  # noqa: PLC0415 - as above

    from servers.audit.command_line import at_command_line  # noqa: PLC0415 - as above

    at_command_line.set(True)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.isatty():
            streams.write_utf_8(stream)  # an export is JSON
    try:
        execute_from_command_line([PROGRAM, *argv[1:]])  # `python -m` has a path there, which no help should name
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough
        streams.let_go()
        sys.exit(streams.BROKEN_PIPE)
    except ImproperlyConfigured as problem:  # a variable that cannot be read: see variables.py
        what, _, remedy = str(problem).partition(". ")
        _end(what, remedy)
    except DatabaseError as problem:
        from mcpadmin.up import database  # noqa: PLC0415 - other commands need none of it

        if (reason := database.why_unusable(problem)) is None or "--traceback" in argv:
            raise
        _end(reason.what, reason.remedy)


def _refuse_unknown(words: list[str], others: Sequence[str]) -> None:
    """Refuse a misspelled command before anything is created. Django would exit with 1, the status of a tool error."""
    known = {"help", "version", "up", *others, *commands()}
    if not words or words[0].startswith("-") or words[0] in known:
        return
    meant = "".join(f" Did you mean {name}?" for name in get_close_matches(words[0], sorted(known), 1))
    sys.stderr.write(
        f"mcpadmin: Unknown command {without_tokens(words[0])!r}.{meant} `{PROGRAM} help` lists all commands.\n"
    )
    sys.exit(_USAGE)


def commands() -> set[str]:
    """The names of the management commands."""
    from django.core.management import find_commands  # noqa: PLC0415 - as above

    packages = [find_spec(name) for name in _WITH_COMMANDS]
    folders = [folder for package in packages if package for folder in package.submodule_search_locations or ()]
    return {name for folder in folders for name in find_commands(os.path.join(folder, "management"))}


def _end(what: str, remedy: str) -> NoReturn:
    """Exit with the one line that `up` prints for the same problem."""
    from mcpadmin.up import options, ready  # noqa: PLC0415 - as above

    if not ready.announce(json.dumps({"problem": [what, remedy]})):
        sys.stderr.write(f"mcpadmin cannot run: {options.StartProblem(what, remedy)}".rstrip() + "\n")
    sys.exit(1)
