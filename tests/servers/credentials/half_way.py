"""A key rotation that kills itself with SIGKILL as soon as it reports half of its work."""

_PROGRAM = """
import os, signal
from django.core.management import call_command

class Output:
    def write(self, text):
        if text.endswith("values renewed\\n") and int(text.split()[0]) >= {half}:
            os.kill(os.getpid(), signal.SIGKILL)

call_command("rotate_keys", stdout=Output())
"""


def killed_after(half: int) -> tuple[str, ...]:
    """Arguments for manage.py. A kill from outside, after reading the report, would be too late for few values."""
    return ("shell", "--no-imports", "-c", _PROGRAM.format(half=half))
