import json
import sys
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from mcpadmin import setup
from mcpadmin.up import assets, database, preflight, ready
from mcpadmin.up.options import StartProblem


class Command(BaseCommand):
    help = "Check the installation, bring the database up to date and collect static files; `up` does it at each start."
    requires_system_checks: list[str] = []  # problems of the installation are reported in one line each

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = self._prepare()
        except StartProblem as problem:
            if not ready.announce(json.dumps({"problem": [problem.what, problem.remedy]})):
                self.stderr.write(f"mcpadmin cannot run: {problem}")
            sys.exit(1)
        if not ready.announce(json.dumps(found)):
            for warning in found["warnings"]:
                self.stderr.write(f"warning: {warning}")

    def _prepare(self) -> dict[str, Any]:
        warnings = database.check_installation(settings.DATA_DIR)
        with ThreadPoolExecutor(1) as pool:
            collecting = pool.submit(self._collect)
            begin = monotonic()
            count = database.bring_up_to_date()
            done = f"{count} migrations applied" if count else "nothing to migrate"
            self.stdout.write(f"database ready in {monotonic() - begin:.2f} s ({done})")
            collecting.result()
        warnings += [*database.keyring_warnings(), *database.checkpoint_warnings()]
        link = setup.link(settings.PUBLIC_URL) if database.needs_administrator() else ""
        return {"held": database.why_held(), "setup_link": link, "warnings": warnings}

    def _collect(self) -> None:
        begin = monotonic()
        with preflight.usable(settings.DATA_DIR):
            files = assets.collect()
        if files:
            self.stdout.write(f"static files ready in {monotonic() - begin:.2f} s ({files} collected)")
