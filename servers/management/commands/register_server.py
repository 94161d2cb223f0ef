import sys
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from servers.audit.record import Actor
from servers.credentials import vault as credentials
from servers.crypto import SealError
from servers.enums import (
    ActionSource,
    ConnectionPolicy,
    Environment,
    EraChoice,
    NetworkAccess,
    Recording,
    SignsInAs,
    TransportKind,
    ValueKind,
)
from servers.models import Credential
from servers.registration import registering
from servers.registration.forms.suggestion import transport_of
from servers.registration.registering import Registration, ValueInput
from servers.secret import Secret
from servers.validators import looks_secret, root_uri
from servers.variables import variable


class Command(BaseCommand):
    help = (
        "Register a server as a user, who needs the same permissions as on the page. Secrets are read from environment "
        "variables, so that no process list shows them: --secret-header Authorization=MY_TOKEN."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, help="username of the account that registers the server")
        parser.add_argument("--name", required=True)
        parser.add_argument("--slug", default="", help="short name used in URLs; generated from the name if omitted")
        parser.add_argument("--description", default="")
        parser.add_argument("--environment", choices=Environment.values, default=Environment.DEVELOPMENT)
        parser.add_argument("--tag", action="append", default=[], metavar="TAG")
        parser.add_argument("--policy", choices=ConnectionPolicy.values, default=ConnectionPolicy.ALWAYS_ON)
        parser.add_argument("--url", default="", help="URL of a server that is already running")
        parser.add_argument(
            "--transport",
            choices=[kind.value for kind in TransportKind if kind != TransportKind.STDIO],
            help="transport of the URL; if omitted, WebSocket for ws:// and wss://, otherwise detected",
        )
        parser.add_argument("--era", choices=EraChoice.values, default=EraChoice.AUTO)
        parser.add_argument(
            "--root", action="append", default=[], metavar="FOLDER[=NAME]", help="folder that the server may ask for"
        )
        parser.add_argument("--worker-label", default="", help="only workers with this label connect to this server")
        parser.add_argument("--no-sampling", action="store_true", help="the server may not request model responses")
        parser.add_argument(
            "--no-elicitation", action="store_true", help="the server may not request input from a person"
        )
        parser.add_argument(
            "--recording", choices=Recording.values, default=Recording.FULL, help="how much of the protocol is recorded"
        )
        parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--secret-header", action="append", default=[], metavar="NAME=VARIABLE")
        parser.add_argument(
            "--signs-in-as", choices=SignsInAs.values, default=SignsInAs.SHARED, help="whose identity calls use"
        )
        parser.add_argument(
            "--credential", action="append", default=[], metavar="NAME", help="name of a stored credential to use"
        )
        parser.add_argument("--working-directory", default="")
        parser.add_argument(
            "--read", action="append", default=[], metavar="PATH", help="file or folder that the command may read"
        )
        parser.add_argument(
            "--write", action="append", default=[], metavar="PATH", help="file or folder that it may also change"
        )
        parser.add_argument(
            "--network",
            choices=NetworkAccess.values,
            default=NetworkAccess.PUBLIC,
            help="what the command may reach over the network",
        )
        parser.add_argument(
            "--host", action="append", default=[], metavar="HOST[:PORT]", help="host that it may also reach"
        )
        parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
        parser.add_argument("--secret-env", action="append", default=[], metavar="NAME=VARIABLE")
        parser.add_argument(
            "--credential-env", action="append", default=[], metavar="NAME", help="a variable that credentials can fill"
        )
        parser.add_argument("--disabled", action="store_true", help="register without connecting")
        parser.add_argument("command", nargs="*", help="program and arguments of a stdio server, after --")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model()._default_manager.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['user']!r}.")
        data, chosen = _registration(options), _chosen(user, options["credential"])
        try:
            server = registering.register(
                Actor.of_user(user, way=ActionSource.COMMAND),
                user,
                data,
                enabled=not options["disabled"],
                chosen=chosen,
            )
        except (PermissionDenied, SealError) as exc:
            raise CommandError(str(exc)) from exc
        except ValidationError as exc:
            raise CommandError(_lines(exc)) from exc
        self.stdout.write(self.style.SUCCESS(f"{server.name} is registered: /servers/{server.slug}/"))


def _registration(options: dict[str, Any]) -> Registration:
    command, url = options["command"], options["url"]
    if bool(command) == bool(url):
        raise CommandError("Pass either --url, or a command line after --.")
    if command and options["transport"]:
        raise CommandError("--transport is only for --url; a command line uses stdio.")
    roots = []
    for text in options["root"]:
        uri, _, name = text.partition("=")
        roots.append({"uri": root_uri(uri), "name": name})
    if options["transport"]:
        transport = TransportKind(options["transport"])
    else:
        transport = transport_of(url) if url else TransportKind.STDIO
    return Registration(
        name=options["name"],
        slug=options["slug"],
        description=options["description"],
        environment=Environment(options["environment"]),
        tags=options["tag"],
        transport=transport,
        era=EraChoice(options["era"]),
        roots=roots,
        command=command[0] if command else "",
        arguments=command[1:],
        working_directory=options["working_directory"],
        readable_paths=options["read"],
        writable_paths=options["write"],
        network_access=NetworkAccess(options["network"]),
        network_hosts=options["host"],
        url=url,
        connection_policy=ConnectionPolicy(options["policy"]),
        worker_label=options["worker_label"],
        signs_in_as=SignsInAs(options["signs_in_as"]),
        recording=Recording(options["recording"]),
        answers_sampling=not options["no_sampling"],
        answers_elicitation=not options["no_elicitation"],
        values=[
            *_plain(ValueKind.HEADER, options["header"], "--secret-header"),
            *_secret(ValueKind.HEADER, options["secret_header"]),
            *_plain(ValueKind.ENVIRONMENT, options["env"], "--secret-env"),
            *_secret(ValueKind.ENVIRONMENT, options["secret_env"]),
            *(ValueInput(ValueKind.ENVIRONMENT, name, True, None, needed=True) for name in options["credential_env"]),
        ],
    )


def _chosen(user: Any, names: list[str]) -> list[Credential]:
    found = {credential.name: credential for credential in credentials.choosable(user).filter(name__in=names)}
    for name in names:
        if name not in found:
            raise CommandError(f"There is no credential {name!r} that this user can attach to a server.")
    return list(found.values())


def _plain(kind: ValueKind, given: list[str], better: str) -> list[ValueInput]:
    values = [ValueInput(kind, name, False, value) for name, value in map(_pair, given)]
    for value in values:
        if looks_secret(value.name):
            sys.stderr.write(f"{value.name} looks like a secret and is stored in plain text. {better} encrypts it.\n")
    return values


def _secret(kind: ValueKind, given: list[str]) -> list[ValueInput]:
    return [ValueInput(kind, name, True, Secret(_variable(variable))) for name, variable in map(_pair, given)]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandError(f"{text!r} is not NAME=VALUE.")
    return name, value


def _variable(name: str) -> str:
    if not (value := variable(name)):
        raise CommandError(f"The environment variable {name} is not set.")
    return value


def _lines(problem: ValidationError) -> str:
    if not hasattr(problem, "error_dict"):
        return " ".join(problem.messages)
    return "\n".join(f"{name}: {' '.join(texts)}" for name, texts in problem.message_dict.items())
