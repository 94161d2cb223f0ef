"""`manage.py rotate_keys`: adds a key to the key ring and re-wraps every sealed value under it, while mcpadmin runs.

To resume a run that was killed, start it again. Where the key ring comes from the environment or a command, the
operator changes it first; this then moves the rows to its current key.
"""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from servers import keyring
from servers.audit.acts import audited
from servers.audit.record import OPERATOR
from servers.credentials import rotation
from servers.crypto import SealError, missing_keys
from servers.enums import AuditAction
from servers.keyring import KeySource
from servers.keyring_file import next_key, prepare_key, remove_keys
from servers.registration.drafts import purge_drafts


class Command(BaseCommand):
    help = (
        "Encrypt every secret with a new key of the key ring, online. After an interruption, run it again to continue."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument(
            "--prepare",
            action="store_true",
            help="only add the next key to the file; then copy the file to every machine and run this again without --prepare",
        )
        chosen.add_argument("--retire", action="store_true", help="afterwards, remove the keys that no row needs")
        chosen.add_argument("--check", action="store_true", help="only report how many rows need which old key")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._prepare() if options["prepare"] else self._handle(retire=options["retire"], check=options["check"])
        except SealError as problem:
            raise CommandError(str(problem)) from None

    def _prepare(self) -> None:
        if keyring.source() is not KeySource.FILE:
            raise CommandError(f"{keyring.described()} is not a file. Add the key where the key ring is kept.")
        with _writing():
            prepared = prepare_key(Path(settings.KEYRING_FILE))
        self.stdout.write(f"Key {prepared} is in the key ring but not used yet.")

    def _handle(self, *, retire: bool, check: bool) -> None:
        if missing := missing_keys():
            raise CommandError(f"{keyring.described()} lacks {', '.join(missing)}. Restore the key ring first.")
        if check:
            self._report(rotation.left())
            return
        if not (retire and self._old()):  # otherwise, only old keys are to be removed
            with _writing():
                key = rotation.begin()
            if key:
                self.stdout.write(f"New key {key} in {settings.KEYRING_FILE}.")
        purge_drafts()
        progress = rotation.rotate(self._say)
        with audited(OPERATOR) as trail:
            details = {"key": keyring.load().current, "renewed": progress.renewed}
            trail.note(AuditAction.KEYS_ROTATE, None, "key ring", details)
        if progress.broken or progress.newer:
            self._report(rotation.left())
        if progress.broken:
            words = "\n".join(progress.broken[:20])
            raise CommandError(f"Not every value could be renewed. Keep the old keys.\n{words}")
        if progress.newer and retire:
            raise CommandError(progress.advice)
        if progress.newer:
            self.stdout.write(progress.advice)
            return
        self.stdout.write(f"Every value is encrypted with {keyring.load().current}; {progress.renewed} were renewed.")
        self._retire(really=retire)

    def _say(self, renewed: int) -> None:
        with suppress(BrokenPipeError):  # `| head` has read enough, which is no reason to stop in the middle
            self.stdout.write(f"{renewed} values renewed")
            self.stdout.flush()

    def _retire(self, *, really: bool) -> None:
        if not (old := self._old()):
            return
        if really and keyring.source() is KeySource.FILE:
            with _writing():
                remove_keys(Path(settings.KEYRING_FILE), old)
            self.stdout.write(
                f"Removed {', '.join(old)} from the key ring. Older backups of the database still need them."
            )
            return
        how = (
            "run this again with --retire"
            if keyring.source() is KeySource.FILE
            else "remove them where the key ring is kept"
        )
        self.stdout.write(
            f"No row needs {', '.join(old)} anymore: {how}. Older backups of the database still need them."
        )

    def _old(self) -> list[str]:
        """The old keys, without the prepared one: it is not in use anywhere yet."""
        loaded = keyring.load()
        prepared = next_key(Path(settings.KEYRING_FILE)) if keyring.source() is KeySource.FILE else ""
        return sorted(loaded.ciphers.keys() - {loaded.current, prepared})

    def _report(self, rest: dict[str, int]) -> None:
        self.stdout.write(json.dumps({"current": keyring.load().current, "left": rest}))


@contextmanager
def _writing() -> Iterator[None]:
    """The folder may be read-only, or the file be mounted alone, as a container's secret is."""
    try:
        yield
    except OSError as problem:
        raise CommandError(f"The key ring file cannot be written ({problem.strerror}).") from None
