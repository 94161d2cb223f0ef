from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from servers import access
from servers.audit.record import Actor
from servers.enums import ActionSource
from servers.registration.exporting import Form, exported


class Command(BaseCommand):
    help = (
        "Write servers to standard output, as the configuration file of an MCP client. It contains no secrets: each "
        "is a placeholder, and import_servers asks for its value."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("slug", nargs="*", help="short names of servers; if omitted, all that are not archived")
        parser.add_argument("--user", required=True, help="username of an account that can see the servers")
        parser.add_argument("--form", choices=[form.value for form in Form], default=Form.MCP_SERVERS.value)
        parser.add_argument(
            "--plain",
            action="store_true",
            help="without the field mcpadmin: tags, notes, owner, limits, timeouts, policies and the names of secrets",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model()._default_manager.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['user']!r}.")
        servers = access.visible_servers(user).select_related("owner")
        chosen = servers.filter(slug__in=options["slug"]) if options["slug"] else servers.filter(archived_at=None)
        found = list(chosen)
        if unknown := set(options["slug"]) - {server.slug for server in found}:
            raise CommandError(f"There is no server {', '.join(sorted(unknown))}.")
        text = exported(
            Actor.of_user(user, way=ActionSource.COMMAND), found, Form(options["form"]), own=not options["plain"]
        )
        self.stdout.write(text, ending="")
