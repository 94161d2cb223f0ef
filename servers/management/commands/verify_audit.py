import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from servers.audit.verify import verify


class Command(BaseCommand):
    help = "Verify the hash chain of the audit log. Exit status 1 when it is broken. A tail that was cut off together with the head's record of it is not found."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--start", type=int, default=1, help="first event, 1 by default")
        parser.add_argument("--end", type=int, default=None, help="last event; without it the head is verified too")

    def handle(self, *args: Any, **options: Any) -> None:
        verdict = verify(options["start"], options["end"])
        if verdict.ok:
            self.stdout.write(self.style.SUCCESS(f"No tampering found: {verdict.checked:,} events verified."))
            return
        self.stderr.write(self.style.ERROR(f"The chain is broken at event {verdict.first_bad_seq}: {verdict.reason}"))
        self.stderr.write(f"{verdict.checked:,} events before it are intact.")
        sys.exit(1)
