"""`manage.py users …`: what the Users page does, for when nobody can sign in. It may give every permission."""

from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.forms import EmailField

from mcpadmin.up import preflight
from servers.accounts import belongings, catalog, links, mail, people
from servers.accounts.authority import Refused
from servers.accounts.links import Invitation
from servers.accounts.reads import InvitationRow, invitation_rows, invitations
from servers.audit.record import OPERATOR
from servers.kit.words import format_count


def _open_invitations() -> Iterator[InvitationRow]:
    page = invitations(revoked=False)
    while True:
        yield from (row for row in invitation_rows(page.rows) if row.open)
        if page.older is None:
            return
        page = invitations(before=page.older, revoked=False)


class Command(BaseCommand):
    help = "List, invite and manage users. Every action is recorded in the audit log under the name mcpadmin."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        verbs.add_parser("list", help="list users and open invitations")
        known = verbs.add_parser("permissions", aliases=["rights"], help="list permissions and groups")
        known.set_defaults(verb="permissions")  # under its old name too
        invite = verbs.add_parser("invite", help="print a link that lets one person create an account")
        invite.add_argument("--name", default="", help="shown beside the username; the person can change it")
        invite.add_argument(
            "--email", default="", help="address to email the link to as well, if MCPADMIN_EMAIL_URL is set"
        )
        for verb, words in (("grant", "grant groups and permissions"), ("revoke", "remove groups and permissions")):
            verbs.add_parser(verb, help=words).add_argument("username")
        for verb, words in (
            ("disable", "sign a user out everywhere and refuse new sign-ins"),
            ("enable", "let a disabled user sign in again"),
            ("reset", "print a link that lets a user set a new password"),
        ):
            verbs.add_parser(verb, help=words).add_argument("username")
        handover = verbs.add_parser("handover", help="make another user the owner of what a user owns")
        handover.add_argument("username")
        handover.add_argument("--to", required=True, metavar="USERNAME")
        for given in (invite, verbs.choices["grant"], verbs.choices["revoke"]):
            given.add_argument("--group", action="append", default=[], help="repeatable")
            given.add_argument(
                "--permission",
                "--right",  # its old name
                dest="permission",
                action="append",
                default=[],
                choices=list(catalog.PERMISSIONS),
                help="repeatable",
            )
            given.add_argument("--superuser", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        verb: Callable[[dict[str, Any]], None] = getattr(self, f"_{options['verb']}")
        try:
            verb(options)
        except Refused as refused:
            raise CommandError(str(refused)) from None

    def _list(self, options: dict[str, Any]) -> None:
        for user in get_user_model()._default_manager.order_by("username").prefetch_related("groups"):
            state = "active" if user.is_active else "disabled"
            seen = f"{user.last_login:%Y-%m-%d %H:%M} UTC" if user.last_login else "never"
            groups = ", ".join(sorted(group.name for group in user.groups.all())) or "-"
            superuser = " superuser" if user.is_superuser else ""
            self.stdout.write(f"{user.get_username()}\t{state}{superuser}\tlast sign-in {seen}\tgroups: {groups}")
        for row in _open_invitations():
            until = f"{row.link.expires_at:%Y-%m-%d %H:%M} UTC"
            self.stdout.write(f"({row.link})\t{row.look.word.lower()}\tuntil {until}\tby {row.link.issued_by_name}")

    def _permissions(self, options: dict[str, Any]) -> None:
        for permission in catalog.PERMISSIONS.values():
            self.stdout.write(f"{permission.codename}\t{permission.allows}")
        for group in Group.objects.order_by("name"):
            self.stdout.write(f"group {group.name}\t{', '.join(sorted(catalog.permissions_of_groups([group])))}")

    def _invite(self, options: dict[str, Any]) -> None:
        try:
            EmailField(required=False).clean(options["email"])
        except ValidationError:
            raise CommandError(f"{options['email']!r} is not an email address.") from None
        invitation = Invitation(
            options["name"], options["email"], options["superuser"], self._groups(options), tuple(options["permission"])
        )
        issued = links.invite(OPERATOR, None, invitation)
        if mailed := mail.send(issued, self._print(issued)):
            self.stderr.write(mailed)

    def _grant(self, options: dict[str, Any]) -> None:
        self._change(options, lambda have, given: have | given, superuser=True)

    def _revoke(self, options: dict[str, Any]) -> None:
        self._change(options, lambda have, taken: have - taken, superuser=False)

    def _change(
        self, options: dict[str, Any], merged: Callable[[set[Any], set[Any]], set[Any]], superuser: bool
    ) -> None:
        user = self._user(options["username"])
        people.set_permissions(
            OPERATOR,
            None,
            user,
            groups=merged(set(user.groups.all()), set(self._groups(options))),
            own=merged(set(catalog.own_permissions(user)), set(options["permission"])),
            superuser=superuser if options["superuser"] else user.is_superuser,
            seen=people.mark(user),
        )
        permissions = ", ".join(sorted(catalog.permissions_of(self._user(options["username"])))) or "none"
        self.stdout.write(f"{user.get_username()} now has these permissions: {permissions}")

    def _disable(self, options: dict[str, Any]) -> None:
        ended = people.disable(OPERATOR, None, self._user(options["username"]))
        self.stdout.write(f"Disabled. {format_count(ended, 'sign-in')} ended.")

    def _enable(self, options: dict[str, Any]) -> None:
        people.enable(OPERATOR, None, self._user(options["username"]))
        self.stdout.write("Enabled.")

    def _reset(self, options: dict[str, Any]) -> None:
        self._print(links.issue_password_link(OPERATOR, None, self._user(options["username"])))

    def _handover(self, options: dict[str, Any]) -> None:
        user = self._user(options["username"])
        moved = people.hand_over(OPERATOR, None, user, self._user(options["to"]))
        self.stdout.write("Handed over: " + ", ".join(f"{count} {what}" for what, count in moved.items()))
        for item in belongings.of(user):
            self.stdout.write(f"Not handed over: {item.title}. {item.note}")

    def _print(self, issued: links.IssuedLink) -> str:
        url = issued.url(preflight.noted_url(settings.DATA_DIR) or settings.PUBLIC_URL)
        self.stdout.write(url)
        self.stderr.write(f"It works once, until {issued.link.expires_at:%Y-%m-%d %H:%M} UTC, and is not shown again.")
        return url

    def _user(self, name: str) -> Any:
        user = get_user_model()._default_manager.filter(username=name).first()
        if user is None:
            raise CommandError(f"There is no user {name}. `{settings.PROGRAM} users list` lists all users.")
        return user

    def _groups(self, options: dict[str, Any]) -> list[Group]:
        found = {group.name: group for group in Group.objects.filter(name__in=options["group"])}
        if missing := [name for name in options["group"] if name not in found]:
            raise CommandError(
                f"There is no group {missing[0]}. `{settings.PROGRAM} users permissions` lists all groups."
            )
        return list(found.values())
