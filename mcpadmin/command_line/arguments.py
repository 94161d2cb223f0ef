"""The command line of the verbs that use a running mcpadmin. It loads fast: `--help` needs nothing else."""

import os
import re
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from mcpadmin import __version__, hardening
from mcpadmin.installation import PROGRAM, document

VERBS: Final = ("call", "list", "read", "prompt", "watch")
KINDS: Final = ("tools", "resources", "templates", "prompts")
DEFAULT_URL: Final = "http://127.0.0.1:8000"
_ABOUT: Final = f"""\
commands that run mcpadmin:
  up                  run the web server, the workers and an embedded Valkey ({PROGRAM} up --help)
  help                list the management commands: users, register_server, verify_audit, ...

A token is read from --token-file, from --token, or from the variable MCPADMIN_TOKEN, in this order. Create one on the
Agents page. Exit statuses: 0 success, 1 tool error, 2 usage, 3 refused, 4 unavailable, 5 outcome unknown, 6 timeout,
7 failed. Full reference: {document("command-line.md")}"""
_TOKEN: Final = re.compile(r"\bmc[ao]_[\w-]+")
_KEY: Final = re.compile(r"(?! )[ -~]{1,128}(?<! )\Z")
_SERVER: Final = "short name of a server or bundle, as in its URL"


class _Secret(Action):
    """Keeps the value, and hides it from what `ps` shows of this process."""

    def __call__(self, parser: ArgumentParser, given: Namespace, value: Any, option: str | None = None) -> None:
        hardening.wipe_argument(value)
        setattr(given, self.dest, value)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Leaves out a token that was given in the wrong place, such as before the command."""
        super().error(without_tokens(message))


def without_tokens(text: str) -> str:
    return _TOKEN.sub("***", text)


def parser() -> ArgumentParser:
    whole = _Parser(
        prog="mcpadmin",
        description="Use the servers of a running mcpadmin, or run mcpadmin.",
        epilog=_ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"mcpadmin {__version__}")
    verbs = whole.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    call = verbs.add_parser("call", help="call a tool", description="Call a tool once and print its result.")
    call.add_argument("server", metavar="SERVER", help=_SERVER)
    call.add_argument("tool", metavar="TOOL")
    _add_json(call)
    call.add_argument(
        "--idempotency-key",
        type=_key,
        metavar="KEY",
        help="if the key was used before, mcpadmin returns that call and sends nothing (128 characters at most)",
    )

    listing = verbs.add_parser("list", help="list servers, or the tools, resources and prompts of one")
    listing.add_argument("server", metavar="SERVER", nargs="?", default="", help=f"{_SERVER}; omit to list the servers")
    listing.add_argument("--kind", choices=KINDS, action="append", help="list only these; repeatable")

    read = verbs.add_parser("read", help="read a resource")
    read.add_argument("server", metavar="SERVER", help=_SERVER)
    read.add_argument("uri", metavar="URI")
    read.add_argument("--raw", action="store_true", help="write only the contents, decoded if they are binary")

    prompt = verbs.add_parser("prompt", help="get a prompt")
    prompt.add_argument("server", metavar="SERVER", help=_SERVER)
    prompt.add_argument("prompt", metavar="PROMPT")
    _add_json(prompt)

    watch = verbs.add_parser("watch", help="report changes of resources and lists as they happen")
    watch.add_argument("server", metavar="SERVER", help=_SERVER)
    watch.add_argument("uris", metavar="URI", nargs="*", help="resources to watch; omit to watch the lists")
    watch.add_argument("--lists", action="store_true", help="also report changes of the lists")
    watch.add_argument("--read", action="store_true", help="read each resource again when it changes")
    watch.add_argument("--count", type=_whole, default=0, metavar="N", help="exit after N changes")

    for verb in (call, listing, read, prompt, watch):
        _add_connection(verb)
    return whole


def _add_json(verb: ArgumentParser) -> None:
    verb.add_argument(
        "--json",
        metavar="ARGUMENTS",
        default="{}",
        help="the arguments, a JSON object; @FILE reads it from a file, - from standard input (%(default)s)",
    )


def _add_connection(verb: ArgumentParser) -> None:
    group = verb.add_argument_group("connection")
    group.add_argument(
        "--url",
        default=os.environ.get("MCPADMIN_URL") or DEFAULT_URL,
        help="address of mcpadmin (MCPADMIN_URL, or %(default)s)",
    )
    group.add_argument(
        "--token-file", metavar="FILE", help="file that contains the token; - reads it from standard input"
    )
    group.add_argument(
        "--token",
        action=_Secret,
        help="the token itself; a shell may keep it in its history, and `ps` can show it for a parent process such as uvx",
    )
    group.add_argument(
        "--allow-http", action="store_true", help="allow sending the token unencrypted to another machine"
    )
    group.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="give up after this many seconds (default: no limit)"
    )
    group.add_argument(
        "--output",
        choices=("text", "json"),
        help="text for people, or JSON Lines (default: text on a terminal, otherwise json)",
    )


def _key(text: str) -> str:
    """An empty key, from an unset variable, would let the tool run again."""
    if not _KEY.match(text):
        raise ArgumentTypeError("the key must be 1 to 128 ASCII characters, without leading or trailing spaces")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 10_000_000:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0")
    return value


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ArgumentTypeError(f"{text!r} is not a whole number greater than 0")
    return int(text)


def parse(arguments: Sequence[str]) -> Namespace:
    return parser().parse_args(arguments)
