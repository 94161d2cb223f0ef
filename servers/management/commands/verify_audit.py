import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from servers.audit.verify import verify


class Command(BaseCommand):
    help = "Verify the audit log: the hash chain, signed checkpoints, payloads and rows of calls. Exit status 1 if the verification fails. With --start or --end only the chain is checked."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--start", type=int, default=1, help="first event, 1 by default")
        parser.add_argument("--end", type=int, default=None, help="last event; without it the head is verified too")

    def handle(self, *args: Any, **options: Any) -> None:
        verdict = verify(options["start"], options["end"])
        if verdict.ok:
            self.stdout.write(self.style.SUCCESS(f"No tampering found: {verdict.checked:,} events verified."))
            if verdict.signed_seq:
                self.stdout.write(f"Signed checkpoints vouch for the log up to event {verdict.signed_seq}.")
            if verdict.warning:
                self.stderr.write(self.style.WARNING(verdict.warning))
            return
        where = (
            "The verification failed"
            if verdict.first_bad_seq is None
            else f"The log is broken at event {verdict.first_bad_seq}"
        )
        self.stderr.write(self.style.ERROR(f"{where}: {verdict.reason}"))
        self.stderr.write(f"{verdict.checked:,} events before it are intact.")
        sys.exit(1)
