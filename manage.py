#!/usr/bin/env python
"""Django's command-line utility; `manage.py up` starts the whole product. Installed, it is the command `mcpadmin`."""

import sys


def main() -> None:
    from mcpadmin import hardening  # noqa: PLC0415 - only a run as a program changes the process

    hardening.harden()
    from mcpadmin.command_line import managing  # noqa: PLC0415 - as above

    managing.run(sys.argv)


if __name__ == "__main__":
    main()
