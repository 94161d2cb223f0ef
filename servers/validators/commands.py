"""Commands that run on the workers."""

import shlex
from pathlib import PurePosixPath

from django.core.exceptions import ValidationError

from servers.validators.characters import CONTROL, MAX_VALUE_LENGTH

MAX_ARGUMENTS = 200


def validate_command(command: str) -> None:
    if not command.strip():
        raise ValidationError(
            "Enter the program to start, for example npx or /usr/local/bin/my-server.", code="required"
        )
    if CONTROL.search(command):
        raise ValidationError("The command must be one line without control characters.", code="command")


def validate_arguments(arguments: list[str]) -> None:
    if len(arguments) > MAX_ARGUMENTS:
        raise ValidationError(f"At most {MAX_ARGUMENTS} arguments. This limit cannot be changed.", code="arguments")
    if any("\0" in argument for argument in arguments):
        raise ValidationError("An argument cannot contain a NUL character.", code="arguments")
    if any(len(argument) > MAX_VALUE_LENGTH for argument in arguments):
        raise ValidationError(
            f"An argument can have at most {MAX_VALUE_LENGTH:,} characters. This limit cannot be changed.",
            code="arguments",
        )


def validate_working_directory(path: str) -> None:
    if CONTROL.search(path):
        raise ValidationError("The directory must be one line without control characters.", code="directory")
    if not PurePosixPath(path).is_absolute() and not path.startswith("${"):
        raise ValidationError("Enter an absolute path, starting with /.", code="directory")


def split_command_line(line: str) -> tuple[str, list[str]]:
    """Split a whole command line as a shell would; no variable, glob or pipe is interpreted."""
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise ValidationError(f"The command line has unmatched quotes: {exc}.", code="quotes") from exc
    if not words:
        raise ValidationError("Enter the program to start.", code="required")
    return words[0], words[1:]
