"""Management commands, and `up`, which runs without Django."""

import json
import os
import sys


def run(argv: list[str]) -> None:
    """`argv` as of a program: its name comes first."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    if argv[1:2] == ["up"]:
        from mcpadmin.up.supervisor import main as up  # noqa: PLC0415 - other commands need none of it

        sys.exit(up(argv[2:]))
    from mcpadmin.up import options, ready, unprivileged  # noqa: PLC0415 - as above

    unprivileged.act_as_owner(options.data_dir(None))
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - as above
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - as above

    try:
        execute_from_command_line(argv)
    except ImproperlyConfigured as problem:  # a variable that cannot be read: see variables.py
        what, _, remedy = str(problem).partition(". ")
        if not ready.announce(json.dumps({"problem": [what, remedy]})):
            sys.stderr.write(f"mcpadmin cannot run: {problem}\n")
        sys.exit(1)
