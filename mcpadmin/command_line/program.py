"""The entry point of the command `mcpadmin`."""

import sys

from mcpadmin import hardening


def main() -> None:
    hardening.harden()
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    from mcpadmin.command_line import arguments  # noqa: PLC0415 - after hardening, which takes the token away

    if word and not word.startswith("-") and word not in arguments.VERBS:
        from mcpadmin.command_line import managing  # noqa: PLC0415 - verbs need none of it

        managing.run(sys.argv)
        return
    given = arguments.parse(sys.argv[1:])
    from mcpadmin.command_line import verbs  # noqa: PLC0415 - half a second of libraries, which --help needs none of

    sys.exit(verbs.run(given))
