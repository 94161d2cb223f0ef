import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from servers.audit.proof import checkpoints
from servers.audit.proof.key import KeyMissing
from servers.audit.verify import verify


class Command(BaseCommand):
    help = "Verify the audit log: the hash chain, signed checkpoints, payloads and call rows. Exit status 1 if the verification fails. With --start or --end only the chain is checked."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--start", type=int, default=None, help="first event; by default the first one that retention has kept"
        )
        parser.add_argument("--end", type=int, default=None, help="last event; without it the head is verified too")

    def handle(self, *args: Any, **options: Any) -> None:
        start, end = options["start"], options["end"]
        verdict = verify() if start in (None, 1) and end is None else verify(_first(start, end), end)
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


def _first(start: int | None, end: int | None) -> int:
    """The first event to verify. Raises CommandError for a range without events: it can be neither broken nor
    intact."""
    try:
        cut = checkpoints.newest_cut()
    except (KeyMissing, OSError) as problem:
        raise CommandError(f"The signed checkpoints cannot be checked. {problem}") from None
    if (start is not None and start < 1) or (end is not None and end < (start or 1)):
        raise CommandError("--start must be 1 or greater, and --end not less than --start.", returncode=2)
    removed = 0 if cut is None else cut.seq
    first = removed + 1 if start is None else start
    if first <= removed or (end is not None and end <= removed):
        raise CommandError(f"Retention removed the events up to {removed}. Choose later ones.", returncode=2)
    return first
