"""Runs pytest where every IPv4 and IPv6 address leads to the same loopback device, and nothing leads outside.

Any connection that our guard lets through therefore arrives at a listener of the test, whatever its address, even that
of a cloud's metadata service.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: the DNS server; its resolv.conf is bind-mounted over the machine's own
NAME_SERVER = "127.0.0.53"
FILES = {
    "/etc/resolv.conf": f"nameserver {NAME_SERVER}\noptions timeout:2 attempts:1\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
}
INSIDE = "OWN_NETWORK"
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
_SETUP = [
    ["ip", "link", "set", "lo", "up"],
    ["ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo"],
    ["ip", "-6", "route", "add", "local", "::/0", "dev", "lo"],
]


def command(*arguments: str) -> list[str]:
    """The command that runs pytest with these arguments in the namespace."""
    return [*UNSHARE, sys.executable, __file__, *arguments]


def _main() -> None:
    for line in _SETUP:
        subprocess.run(line, check=True)
    folder = Path(tempfile.mkdtemp(prefix="own-network-"))
    for target, text in FILES.items():
        source = folder / Path(target).name
        source.write_text(text)
        subprocess.run(["mount", "--bind", str(source), target], check=True)
    os.environ[INSIDE] = "1"
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *sys.argv[1:]])  # noqa: S606 - replaces this process


if __name__ == "__main__":
    _main()
