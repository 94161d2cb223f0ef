"""The entry point of the command `mcpadmin`."""

import sys
import traceback
from typing import Final

from mcpadmin import hardening

_FAILED: Final = 7  # ExitStatus.FAILED, whose module may be the one that cannot be loaded


def main() -> None:
    hardening.harden()
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    from mcpadmin.command_line import arguments  # noqa: PLC0415 - after hardening, which takes the token away

    if word and not word.startswith("-") and word not in arguments.VERBS:
        from mcpadmin.command_line import managing  # noqa: PLC0415 - verbs need none of it

        managing.run(sys.argv, arguments.VERBS)
        return
    given = arguments.parse(sys.argv[1:])
    try:
        from mcpadmin.command_line import verbs  # noqa: PLC0415 - half a second of libraries, which --help needs none of
    except Exception:  # a broken installation must not exit with 1, which says that the tool has answered
        traceback.print_exc()
        sys.exit(_FAILED)
    sys.exit(verbs.run(given))
