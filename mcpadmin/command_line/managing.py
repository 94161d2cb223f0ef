"""Management commands, and `up`, which runs without Django."""

import json
import os
import sys
from typing import NoReturn


def run(argv: list[str]) -> None:
    """`argv` as of a program: its name comes first."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    if argv[1:2] == ["up"]:
        from mcpadmin.up.supervisor import main as up  # noqa: PLC0415 - other commands need none of it

        sys.exit(up(argv[2:]))
    from mcpadmin.up import options, preflight, unprivileged  # noqa: PLC0415 - as above

    data_dir = options.data_dir(None)
    os.environ["MCPADMIN_DATA_DIR"] = str(data_dir)  # the default of the owner may be another one
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
    try:
        execute_from_command_line(argv)
    except ImproperlyConfigured as problem:  # a variable that cannot be read: see variables.py
        what, _, remedy = str(problem).partition(". ")
        _end(what, remedy)
    except DatabaseError as problem:
        from mcpadmin.up import database  # noqa: PLC0415 - other commands need none of it

        if (reason := database.why_unusable(problem)) is None or "--traceback" in argv:
            raise
        _end(reason.what, reason.remedy)


def _end(what: str, remedy: str) -> NoReturn:
    """With the one line that `up` prints for the same problem."""
    from mcpadmin.up import options, ready  # noqa: PLC0415 - as above

    if not ready.announce(json.dumps({"problem": [what, remedy]})):
        sys.stderr.write(f"mcpadmin cannot run: {options.StartProblem(what, remedy)}".rstrip() + "\n")
    sys.exit(1)
