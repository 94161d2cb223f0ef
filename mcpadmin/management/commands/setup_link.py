from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mcpadmin import setup
from mcpadmin.up import preflight


class Command(BaseCommand):
    help = "Print a new link for creating the first administrator (works once, for 24 hours)."

    def handle(self, *args: Any, **options: Any) -> None:
        if setup.administrator_exists():
            raise CommandError(
                f"An administrator already exists. Sign in with that account; `{settings.PROGRAM} users reset <name>` prints a link that sets a new password."
            )
        self.stdout.write(setup.link(preflight.noted_url(settings.DATA_DIR) or settings.PUBLIC_URL))
