import sys

from mcpadmin.demo_server.server import Server
from mcpadmin.demo_server.wire import Outlet


def main() -> None:
    Server(Outlet(sys.stdout.buffer)).serve(sys.stdin.buffer)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
