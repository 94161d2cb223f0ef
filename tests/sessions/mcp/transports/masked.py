"""Tries to start a confined server where the kernel answers as if it had no Landlock, and prints why that failed.

python -m tests.sessions.mcp.transports.masked FOLDER
"""

import asyncio
import ctypes
import os
import struct
import sys
from pathlib import Path

from sessions.mcp.core.errors import LaunchError
from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import Confinement, prepare_loop, user
from tests.sessions.mcp.transports.robbery import Receiver

_ENOSYS, _ALLOW, _FIRST, _LAST = 0x00050026, 0x7FFF0000, 444, 446


def mask_landlock() -> None:
    """For this process and all that it starts, by seccomp."""
    code = b"".join(
        struct.pack("HBBI", *line)
        for line in (
            (0x20, 0, 0, 0),
            (0x35, 0, 2, _FIRST),
            (0x25, 1, 0, _LAST),
            (0x06, 0, 0, _ENOSYS),
            (0x06, 0, 0, _ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer)), 16)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0


async def tried(folder: Path) -> str:
    prepare_loop(asyncio.get_running_loop())
    uid = user(1)
    for name in ("home", "tmp", "view"):
        (folder / name).mkdir()
        if uid and name != "view":
            os.chown(folder / name, uid, uid)
    confinement = Confinement(str(folder / "home"), str(folder / "tmp"), str(folder / "view"), uid=uid)
    transport = await open_transport(StdioSpec("/bin/cat", confinement=confinement))
    try:
        return await transport.connect(Receiver())  # type: ignore[arg-type]  # the part of a receiver that is called
    except LaunchError as refused:
        return f"{refused.fault}: {refused.detail}"
    finally:
        await transport.close()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        mask_landlock()
    print(asyncio.run(tried(Path(sys.argv[1]))))
