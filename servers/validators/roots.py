"""Roots: the folders that a server may ask for (specification 2025-11-25, *Client features / Roots*)."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ValidationError

from servers.validators.characters import CONTROL

MAX_ROOTS, MAX_URI_LENGTH, MAX_NAME_LENGTH = 50, 2_000, 200
_LOCAL_FILE = re.compile(r"file://(?:localhost)?/", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
Root = dict[str, str]  # {"uri": "file:///srv/data", "name": "Data"}; the name may be empty


def root_uri(text: str) -> str:
    """`text` as a normalized URI; a plain absolute path, as copied from a terminal, is converted."""
    text = text.strip()
    if text.startswith("/") and "\0" not in text:
        return PurePosixPath("/" + text.lstrip("/")).as_uri()
    return _LOCAL_FILE.sub("file:///", text)


def validate_root_uri(uri: str) -> None:
    if not uri:
        raise ValidationError("Enter a folder, for example file:///srv/data.", code="required")
    if len(uri) > MAX_URI_LENGTH:
        raise ValidationError(f"At most {MAX_URI_LENGTH:,} characters. This limit cannot be changed.", code="length")
    if CONTROL.search(uri) or " " in uri or "\t" in uri or not uri.isascii() or _BROKEN_ESCAPE.search(uri):
        message = "Percent-encode spaces and non-ASCII letters (%20), and % as %25; or enter the plain path."
        raise ValidationError(message, code="uri")
    _validate_parts(uri)


def _validate_parts(uri: str) -> None:
    try:
        parts = urlsplit(uri)
    except ValueError as exc:
        raise ValidationError(f"Invalid URI: {exc}.", code="uri") from exc
    if parts.scheme.lower() != "file":
        raise ValidationError("A root must be a file URI, starting with file:///.", code="scheme")
    if not uri.startswith("file:///"):
        raise ValidationError("Use three slashes and an absolute path: file:///srv/data.", code="path")
    if parts.query or parts.fragment or uri[-1] in "?#":
        raise ValidationError("A root cannot contain ? or #. Write them as %3F and %23.", code="uri")
    if "\0" in unquote(parts.path):
        raise ValidationError("A path cannot contain a NUL character.", code="uri")
    if ".." in unquote(parts.path).split("/"):
        raise ValidationError("Enter the path without “..”.", code="path")


def validate_root_name(name: str) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise ValidationError(f"At most {MAX_NAME_LENGTH} characters. This limit cannot be changed.", code="length")
    if CONTROL.search(name) or "\t" in name:
        raise ValidationError("A name must be one line without control characters.", code="name")


def validate_roots(roots: Sequence[Root]) -> None:
    if len(roots) > MAX_ROOTS:
        raise ValidationError(f"At most {MAX_ROOTS} roots. This limit cannot be changed.", code="roots")
    for root in roots:
        validate_root_uri(root["uri"])
        validate_root_name(root["name"])
    uris = [root["uri"] for root in roots]
    if doubles := {uri for uri in uris if uris.count(uri) > 1}:
        raise ValidationError(f"{min(doubles)} is listed twice.", code="double")
