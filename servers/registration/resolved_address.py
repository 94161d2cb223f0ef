"""How to reach a server, with its references resolved: arguments, working directory, URL. Used in workers only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import quote

from servers.configuration import Registration
from servers.credentials.references import ReferenceMissing, Resolved, has_reference, resolve
from servers.enums import TransportKind
from servers.models import Server
from servers.secret import Secret
from servers.validators import origin


@dataclass(frozen=True)
class ResolvedAddress:
    """`secrets`: each inserted value; `files`: those in a URL that were read from files. Fields with such values are
    excluded from the repr."""

    arguments: tuple[str, ...] = field(default=(), repr=False)
    working_directory: str = field(default="", repr=False)
    url: str = field(default="", repr=False)
    secrets: tuple[Secret, ...] = ()
    files: tuple[Secret, ...] = ()


def reached(
    source: Server | Registration, granted: Collection[str], own: Mapping[str, str | Secret] | None = None
) -> ResolvedAddress:
    """`granted`: the references that may be used; `own`: the variables that the server is started with. Raises
    ReferenceMissing, which says where the reference is."""
    if source.transport != TransportKind.STDIO:
        # Each value is fully percent-encoded (RFC 3986 section 2.1), so it cannot break out of its part of the URL.
        found = _named("URL", source.url, granted, encoded=True)
        if has_reference(source.url) and origin(found.text) != origin(source.url):
            raise ReferenceMissing("URL: references are allowed only in the path and query.")
        return ResolvedAddress(url=found.text, secrets=tuple(found.secrets), files=tuple(found.files))
    arguments = [_named(f"Argument {number}", text, granted, own) for number, text in enumerate(source.arguments, 1)]
    directory = _named("Working directory", source.working_directory, granted, own)
    if directory.text and not PurePosixPath(directory.text).is_absolute():
        raise ReferenceMissing("Working directory: the reference does not resolve to an absolute path.")
    secrets = [secret for part in (*arguments, directory) for secret in part.secrets]
    return ResolvedAddress(tuple(part.text for part in arguments), directory.text, "", tuple(secrets))


def _named(
    place: str,
    text: str,
    granted: Collection[str],
    own: Mapping[str, str | Secret] | None = None,
    *,
    encoded: bool = False,
) -> Resolved:
    if "${" not in text:
        return Resolved(text)
    try:
        return resolve(text, granted, (lambda value: quote(value, safe="")) if encoded else str, own)
    except ReferenceMissing as missing:
        raise type(missing)(f"{place}: {missing}") from None
