import sys
from pathlib import Path

if not __package__:  # started by path, which works from any working directory
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from mcpadmin.demo_server.rpc import LineWriter
from mcpadmin.demo_server.server import Server


def main() -> None:
    Server(LineWriter(sys.stdout.buffer)).serve(sys.stdin.buffer)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
