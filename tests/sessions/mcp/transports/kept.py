"""Starts a confined server as an ordinary user without namespaces, and waits to be killed.

python -m tests.sessions.mcp.transports.kept FOLDER SCRIPT [ends]
Prints the server's process; with `ends` waits for the end of the server and prints its words.
"""

import asyncio
import sys
from pathlib import Path

from sessions.mcp.transports.registry import StdioSpec, open_transport
from sessions.mcp.transports.stdio import Confinement, Confines, Tier, prepare_loop, tiers
from tests.sessions.mcp.transports.robbery import Receiver


async def run(folder: Path, script: str, *, ends: bool) -> None:
    prepare_loop(asyncio.get_running_loop())
    for name in ("home", "tmp", "view"):
        (folder / name).mkdir(exist_ok=True)
    confinement = Confinement(str(folder / "home"), str(folder / "tmp"), str(folder / "view"))
    transport = await open_transport(StdioSpec("/bin/sh", ("-c", script), confinement=confinement))
    receiver = Receiver()
    print(await transport.connect(receiver), flush=True)  # type: ignore[arg-type]  # the part of a receiver that is called
    try:
        await (receiver.report if ends else asyncio.Event().wait())
    except RuntimeError as ended:
        print(ended, flush=True)
    await transport.close()


if __name__ == "__main__":
    tiers._found = Confines(Tier.LANDLOCK, view=False)
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2], ends=sys.argv[3:] == ["ends"]))
