import os
import sys
from argparse import ArgumentParser, BooleanOptionalAction
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from mcpadmin.up import ground
from mcpadmin.up.options import Options
from mcpadmin.up.problems import StartProblem
from mcpadmin.up.supervisor import supervise


class Command(BaseCommand):
    help = "Run mcpadmin: the web server, the workers, beat and (unless REDIS_URL is set) an embedded Valkey."
    requires_system_checks: list[str] = []  # `up` says its own problems, in one line each

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host", default=os.environ.get("MCPADMIN_HOST", "127.0.0.1"), help="address to listen on (%(default)s)"
        )
        parser.add_argument(
            "--port", type=int, default=8000, help="port to listen on (%(default)s); 0 takes a free one"
        )
        parser.add_argument("--workers", type=int, default=1, help="number of worker processes (%(default)s)")
        parser.add_argument(
            "--label", action="append", metavar="LABEL", help="label that the workers carry; may be given again"
        )
        parser.add_argument("--data-dir", help=f"where all data lives ({settings.DATA_DIR})")
        parser.add_argument("--browser", action=BooleanOptionalAction, default=True, help="open the page in a browser")

    def handle(self, *args: object, **given: Any) -> None:
        try:
            ground.check_python()
            options = Options.parse(given, settings.DATA_DIR)
            ground.prepare_data_dir(options.data_dir)
            ground.check_installation(options.data_dir)
            supervise(options)
        except StartProblem as problem:
            self.stderr.write(f"mcpadmin cannot run: {problem}")
            sys.exit(1)
