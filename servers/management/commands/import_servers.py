import sys
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from servers import limits
from servers.audit.record import Actor
from servers.enums import ActionSource
from servers.kit.visible import visible_text
from servers.registration.importing.applying import Choice, Decision, apply, choices
from servers.registration.importing.document import ImportedDocument, read
from servers.registration.importing.planning import Plan, Proposal, plan
from servers.variables import variable

_RENAMED = " (imported)"


class Command(BaseCommand):
    help = (
        "Import servers as a user, from the configuration file of another MCP client or from an export. The user "
        "needs the same permissions as on the page. Values that the file leaves out are read from environment "
        "variables: --value input:github-token=MY_TOKEN."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", help="JSON (comments allowed), TOML, YAML or a README; - reads standard input")
        parser.add_argument("--user", required=True, help="username of the account that imports the servers")
        parser.add_argument(
            "--on-conflict",
            choices=[Choice.SKIP.value, Choice.OVERWRITE.value, Choice.RENAME.value],
            default=Choice.SKIP.value,
            help="what to do with a server whose name is taken",
        )
        parser.add_argument("--value", action="append", default=[], metavar="KEY=VARIABLE")
        parser.add_argument("--dry-run", action="store_true", help="show what would happen and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        user = get_user_model()._default_manager.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {options['user']!r}.")
        document = _document(options["file"])
        for remark in document.remarks:
            self.stderr.write(_on_one_line(remark))
        proposals = plan(user, document)
        if options["dry_run"]:
            for proposal in proposals:
                self.stdout.write(_planned(proposal))
            return
        typed = dict(map(_value, options["value"]))
        decisions = {one.index: _decision(one, Choice(options["on_conflict"]), typed) for one in proposals}
        outcomes = apply(Actor.of_user(user, way=ActionSource.COMMAND), user, document, proposals, decisions)
        for outcome in outcomes:
            needed = [f"Missing values: {', '.join(outcome.needed)}."] if outcome.needed else []
            self.stdout.write(_line(outcome.result, outcome.name, [outcome.words, *needed]))
        if any(outcome.result == "refused" for outcome in outcomes):
            raise CommandError("Some servers were not imported. The others were.")


def _document(path: str) -> ImportedDocument:
    try:
        most = limits.number("import_bytes") + 1  # bounded before it is read
        if path == "-":
            source = sys.stdin.buffer.read(most)
        else:
            with Path(path).open("rb") as file:
                source = file.read(most)
        return read(source.decode("utf-8"))
    except OSError as exc:
        raise CommandError(f"{path} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError:
        raise CommandError(f"{path} is not UTF-8 text.") from None
    except ValidationError as problem:
        raise CommandError(_on_one_line(" ".join(problem.messages))) from problem


def _decision(proposal: Proposal, on_conflict: Choice, typed: dict[str, str]) -> Decision:
    allowed = choices(proposal)
    default = allowed[0] if proposal.verdict == Plan.CREATE else on_conflict
    choice = default if default in allowed else Choice.SKIP
    version = proposal.stored.version if proposal.stored else 0
    return Decision(choice, f"{proposal.entry.name}{_RENAMED}", version, typed)


def _planned(proposal: Proposal) -> str:
    said = [*proposal.reasons, *proposal.entry.notes, *(difference.field for difference in proposal.differences)]
    said.append(proposal.kept_state)
    if needs := [need.key for need in proposal.entry.needs]:
        said.append(f"Values to fill in: {', '.join(needs)}.")
    if proposal.verdict == Plan.CREATE and choices(proposal)[0] == Choice.SKIP:
        said.append("Another way to run a server of this file. To import it, choose it on the page.")
        return _line(Choice.SKIP, proposal.entry.name, said)
    return _line(proposal.verdict, proposal.entry.name, said)


def _line(result: str, name: str, said: list[str]) -> str:
    words = " ".join(word for word in said if word)
    return _on_one_line(f"{result}: {name}: {words}" if words else f"{result}: {name}")


def _on_one_line(text: str) -> str:
    """It quotes the file, whose characters must not move the terminal's cursor."""
    return visible_text(text.replace("\n", " "))


def _value(text: str) -> tuple[str, str]:
    key, equals, name = text.rpartition("=")
    if not equals or not key:
        raise CommandError("--value takes KEY=VARIABLE.")
    if not (value := variable(name)):
        raise CommandError(f"The environment variable {name} is not set.")
    return key, value
