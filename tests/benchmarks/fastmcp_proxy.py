"""A gateway of another project before the echo server: FastMCP's proxy. For the interpreter of the peer `fastmcp`.

python fastmcp_proxy.py URL, with its own URL on stderr.
"""

import socket
import sys

import uvicorn
from fastmcp.server import create_proxy

if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    app = create_proxy(sys.argv[1], name="proxy").http_app(path="/mcp")
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
