from typing import Any

from django.core.management.base import BaseCommand
from django.db import transaction

from servers import instance
from servers.audit.record import OPERATOR, record_many


class Command(BaseCommand):
    help = "Let a restored or copied installation open sessions. Run it only if the original will never run again."

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            events = instance.release(OPERATOR)
            record_many(events)
        self.stdout.write(
            "Released. Workers open the sessions within a few seconds." if events else "This instance is not on hold."
        )
