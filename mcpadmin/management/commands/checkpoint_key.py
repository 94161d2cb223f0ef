"""`manage.py checkpoint_key`: shows the public key of the audit log, and replaces the key."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from mcpadmin import keys
from servers.audit.acts import audited
from servers.audit.proof import checkpoints, key
from servers.audit.proof.key import KeyMissing
from servers.audit.proof.notes import NoteInvalid, PublicKey
from servers.audit.record import OPERATOR
from servers.enums import AuditAction


class Command(BaseCommand):
    help = "Print the public key that verifies the checkpoints of the audit log; older keys follow it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--replace", action="store_true", help="create a new key; signatures of the old one stay valid"
        )
        parser.add_argument(
            "--retired",
            action="append",
            default=[],
            metavar="PUBLIC_KEY",
            help="with --replace, if the old key file is lost: its public key, from your notes",
        )
        parser.add_argument(
            "--forget",
            action="store_true",
            help="with --replace, if the public key is lost too: give up what the old key signed",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if (options["retired"] or options["forget"]) and not options["replace"]:
            raise CommandError("--retired and --forget need --replace.")
        if options["replace"]:
            self._replace([key.strip() for key in options["retired"]], forget=options["forget"])
        try:
            for known in key.load().trusted:
                self.stdout.write(known.text)
        except KeyMissing as problem:
            raise CommandError(str(problem)) from None

    def _replace(self, retired: list[str], *, forget: bool) -> None:
        path = Path(settings.CHECKPOINT_KEY_FILE)
        try:
            for text in retired:
                PublicKey.parsed(text)
        except NoteInvalid as problem:
            raise CommandError(str(problem)) from None
        try:
            retired = [known.text for known in key.load().trusted] + retired
        except KeyMissing as problem:
            if not (retired or forget):
                raise CommandError(
                    f"{problem} Give its public key with --retired, or give up what it signed with --forget."
                ) from None
        unknown = [
            one for one in checkpoints.signers() if one not in {PublicKey.parsed(text).id.hex() for text in retired}
        ]
        if unknown and not forget:
            raise CommandError(
                f"Checkpoints in the database were signed with key {unknown[0]}. Give its public key with --retired, or give up what it signed with --forget."
            )
        try:
            keys.replace_checkpoint_key(path, _host(), retired)
        except OSError as problem:  # the folder may be read-only, or the file be mounted alone, as a secret is
            raise CommandError(f"The checkpoint key file cannot be written ({problem.strerror}).") from None
        with audited(OPERATOR) as trail:
            dropped = checkpoints.forget(unknown) if unknown else 0
            details = {"key": key.load().public.text, "retired": retired, "forgotten": dropped}
            trail.note(AuditAction.CHECKPOINT_KEY, None, "checkpoint key", details)
        self.stdout.write("The key was replaced. Restart mcpadmin, and note the new public key:")


def _host() -> str:
    return str(settings.PUBLIC_URL).partition("://")[2].partition("/")[0].rpartition("@")[2] or "mcpadmin"
