"""The formats that pages show or play, and the bytes by which each is known, whatever the server calls it."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """`mimes`: the names of its types, the usual one first; none of a format that is never shown. `kind`: of the element
    that shows it: image, audio, video; binary for a document."""

    name: str
    kind: str
    mimes: tuple[str, ...]
    begins: re.Pattern[bytes]


def _format(name: str, kind: str, begins: bytes, *mimes: str) -> Format:
    return Format(name, kind, mimes, re.compile(begins, re.DOTALL))


#: markup, which a browser could run
ACTIVE = _format("HTML or SVG", "binary", rb"(?:\xef\xbb\xbf)?\s{0,200}<(?:[a-zA-Z!?])")
FORMATS = (
    _format("PNG", "image", rb"\x89PNG\r\n\x1a\n", "image/png"),
    _format("JPEG", "image", rb"\xff\xd8\xff", "image/jpeg", "image/jpg"),
    _format("GIF", "image", rb"GIF8[79]a", "image/gif"),
    _format("WebP", "image", rb"RIFF.{4}WEBP", "image/webp"),
    _format("WAV", "audio", rb"RIFF.{4}WAVE", "audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"),
    _format("FLAC", "audio", rb"fLaC", "audio/flac", "audio/x-flac"),
    _format("AAC", "audio", rb"\xff[\xf0\xf1\xf8\xf9]", "audio/aac", "audio/aacp"),
    _format("MP3", "audio", rb"ID3|\xff[\xe2-\xe7\xf2-\xf7\xfa-\xfe]", "audio/mpeg", "audio/mp3"),
    _format("Ogg", "audio", rb"OggS", "audio/ogg", "video/ogg", "application/ogg"),
    _format("MPEG-4 audio", "audio", rb".{4}ftypM4A", "audio/mp4", "audio/x-m4a", "audio/m4a"),
    _format("MP4", "video", rb".{4}ftyp", "video/mp4", "audio/mp4", "video/quicktime", "audio/x-m4a"),
    _format("WebM", "video", rb"\x1a\x45\xdf\xa3", "video/webm", "audio/webm"),
    _format("PDF", "binary", rb"%PDF-", "application/pdf"),
    ACTIVE,
)


def format_of(data: bytes) -> Format | None:
    """None if the bytes are of no format that this file knows."""
    return next((one for one in FORMATS if one.begins.match(data)), None)


def declared_format(mime: str) -> Format | None:
    """The format that a type without parameters promises."""
    return next((one for one in FORMATS if mime in one.mimes), None)


def kind_of(mime: str, found: Format) -> str:
    """A container of both is what its server calls it."""
    said = mime.partition("/")[0]
    return said if said in ("audio", "video") and mime in found.mimes else found.kind


def mismatch(mime: str, data: bytes) -> str:
    """What a person should know of a declared type that is not that of the bytes; empty if nothing is wrong."""
    if not data:
        return "Empty: the server sent 0 bytes."
    found = format_of(data)
    if found is None:
        return f"Declared as {mime[:60]}, but the data is not." if declared_format(mime) else ""
    if mime in found.mimes or (found is ACTIVE and declared_format(mime) is None):
        return ""
    return (
        f"Declared as {mime[:60]}, but the data is {found.name}."
        if mime
        else f"No declared type. The data is {found.name}."
    )
