from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from servers.audit.record import Actor
from servers.credentials import reference_grants
from servers.enums import ActionSource
from servers.models import ReferenceGrant


class Command(BaseCommand):
    help = (
        "Grant a reference, such as MCP_TOKEN or file:/run/secrets/token, to a person or group: they can then use it in the "
        "servers and credentials that they save. Without a reference, list all grants."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reference", nargs="?", default="", help="name of the reference, without ${}")
        parser.add_argument("--user", default="", help="username of the account that grants the reference")
        holder = parser.add_mutually_exclusive_group()
        holder.add_argument("--to", default="", metavar="USER", help="username of the person to grant it to")
        holder.add_argument("--to-group", default="", metavar="GROUP")
        parser.add_argument("--revoke", action="store_true", help="remove the grant")

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["reference"]:
            for row in reference_grants.rows():
                self.stdout.write(f"{row.grant.name}: {row.holder}")
            return
        user = get_user_model()._default_manager.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(
                f"There is no active user {options['user']!r}. Name the account that grants with --user."
            )
        holder = _holder(options)
        try:
            if options["revoke"]:
                self._revoke(user, options["reference"], holder)
            else:
                made = reference_grants.grant(
                    Actor.of_user(user, way=ActionSource.COMMAND), user, options["reference"], holder
                )
                self.stdout.write(f"{made.name} is granted to {reference_grants.describe_holder(made)}.")
        except PermissionDenied as exc:
            raise CommandError(str(exc)) from exc
        except ValidationError as exc:
            raise CommandError(" ".join(exc.messages)) from exc

    def _revoke(self, user: Any, reference: str, holder: Any) -> None:
        of: dict[str, Any] = {"group": holder} if isinstance(holder, Group) else {"user": holder}
        found = ReferenceGrant.objects.filter(name=reference_grants.checked_name(reference), **of).first()
        if found is None:
            raise CommandError("This grant does not exist.")
        reference_grants.revoke(Actor.of_user(user, way=ActionSource.COMMAND), user, found)
        self.stdout.write(f"{found.name} is no longer granted to {reference_grants.describe_holder(found)}.")


def _holder(options: dict[str, Any]) -> Any:
    if options["to_group"]:
        if (group := Group.objects.filter(name=options["to_group"]).first()) is None:
            raise CommandError(f"There is no group {options['to_group']!r}.")
        return group
    holder = get_user_model()._default_manager.filter(username=options["to"]).first()
    if holder is None:
        raise CommandError(
            f"There is no user {options['to']!r}. Name the person with --to, or a group with --to-group."
        )
    return holder
