from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from mcpadmin.vendoring.cli import run
from mcpadmin.vendoring.npm import VendorError


class Command(BaseCommand):
    help = "Vendor browser files from npm packages, or verify them against the lock."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--verify", action="store_true", help="compare the files with the lock, without a network")
        parser.add_argument("--outdated", action="store_true", help="ask npm for newer versions; changes nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            status = run(verify=options["verify"], outdated=options["outdated"])
        except VendorError as problem:
            raise CommandError(str(problem)) from problem
        if status:
            raise CommandError("vendored files differ from the lock")
