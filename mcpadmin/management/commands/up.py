import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from mcpadmin.up import options


class Command(BaseCommand):
    """For `manage.py help`; manage.py itself runs `up` without Django."""

    help = options.HELP
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        options.add_arguments(parser)

    def handle(self, *args: object, **given: Any) -> None:
        os.execv(sys.executable, [sys.executable, "-m", "mcpadmin", *sys.argv[1:]])  # noqa: S606 - our own program, no shell
