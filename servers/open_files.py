"""The limit on a process's open files."""

import resource
from contextlib import suppress
from typing import Final

#: open files that this process may need; a higher limit would only make child processes start more slowly
MOST: Final = 65_536


def raise_limit(most: int = MOST) -> int:
    """Raise the limit to `most`, as far as the system allows: 1,024 is a common default. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    aim = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft != resource.RLIM_INFINITY and soft < aim:
        with suppress(ValueError, OSError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if soft == resource.RLIM_INFINITY else soft
