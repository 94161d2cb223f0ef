#!/usr/bin/env python
"""Django's command-line utility; `manage.py up` starts the whole product."""

import os
import sys


def adopt_data_dir(argv: list[str]) -> None:
    """Settings read the data directory once, at import, so `--data-dir` must reach them before Django starts."""
    for index, word in enumerate(argv):
        if word == "--data-dir" and index + 1 < len(argv):
            os.environ["MCPADMIN_DATA_DIR"] = os.path.abspath(argv[index + 1])
        elif word.startswith("--data-dir="):
            os.environ["MCPADMIN_DATA_DIR"] = os.path.abspath(word.partition("=")[2])


def main() -> None:
    from mcpadmin import hardening  # noqa: PLC0415 - only a run as a program changes the process

    hardening.harden()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mcpadmin.settings")
    adopt_data_dir(sys.argv[1:])
    if sys.argv[1:2] == ["up"]:
        from mcpadmin.up.supervisor import main as up  # noqa: PLC0415 - other commands need none of it

        sys.exit(up(sys.argv[2:]))
    from mcpadmin.up import options, unprivileged  # noqa: PLC0415 - as above

    unprivileged.act_as_owner(options.data_dir(None))
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - after adopt_data_dir

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
