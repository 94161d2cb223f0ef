"""Starts a confined server and waits to be killed.

python -m tests.sessions.mcp.transports.kept RUNTIME FOLDER SCRIPT [ends]
RUNTIME: the command line of a container runtime, or nothing: then as an ordinary user without namespaces. Prints the
server's process; with `ends` waits for the end of the server and prints its words.
"""

import asyncio
import os
import shlex
import sys
from pathlib import Path

from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import (
    Confinement,
    MachineConfinement,
    Runtime,
    Tier,
    confines,
    prepare_loop,
    tiers,
    user,
)
from tests.sessions.mcp.transports.robbery import Receiver


async def run(runtime: str, folder: Path, script: str, *, ends: bool) -> None:
    prepare_loop(asyncio.get_running_loop())
    if runtime and (found := await confines(Runtime(tuple(shlex.split(runtime))))).tier is not Tier.CONTAINER:
        sys.exit(found.reason)
    for name in ("home", "tmp", "view"):
        (folder / name).mkdir(exist_ok=True)
    uid = user(7)
    if uid:
        os.chown(folder / "home", uid, uid)
        os.chown(folder / "tmp", uid, uid)
    confinement = Confinement(str(folder / "home"), str(folder / "tmp"), str(folder / "view"), uid=uid)
    transport = await open_transport(StdioSpec("/bin/sh", ("-c", script), confinement=confinement))
    receiver = Receiver()
    print(await transport.connect(receiver), flush=True)  # type: ignore[arg-type]  # the part of a receiver that is called
    try:
        await (receiver.report if ends else asyncio.Event().wait())
    except RuntimeError as ended:
        print(ended, flush=True)
    await transport.close()


if __name__ == "__main__":
    if not sys.argv[1]:
        tiers._found = MachineConfinement(Tier.LANDLOCK, view=False)
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), sys.argv[3], ends=sys.argv[4:] == ["ends"]))
