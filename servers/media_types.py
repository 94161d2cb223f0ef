"""The formats that pages show or play, and the bytes that identify each, whatever type the server declares."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """`mimes`: the names of its types, the usual one first, each with the extensions of its files, the usual one first;
    none of markup. `kind`: of the element that shows it: image, audio, video; binary for what no element shows.
    `opens`: a browser shows it in a tab of its own."""

    name: str
    kind: str
    mimes: Mapping[str, tuple[str, ...]]
    begins: re.Pattern[bytes]
    opens: bool

    @property
    def mime(self) -> str:
        return next(iter(self.mimes))


def _format(name: str, kind: str, begins: bytes, mimes: dict[str, str], *, opens: bool = True) -> Format:
    extensions = {mime: tuple(words.split()) for mime, words in mimes.items()}
    return Format(name, kind, extensions, re.compile(begins, re.DOTALL), opens)


_WAV = ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave")
_HEIF = ("image/heic", "image/heif", "image/heic-sequence", "image/heif-sequence")
_MATROSKA = {"video/x-matroska": ".mkv", "video/matroska": ".mkv", "audio/x-matroska": ".mka", "audio/matroska": ".mka"}
#: markup, which a browser could run
ACTIVE = _format("HTML or SVG", "binary", rb"(?:\xef\xbb\xbf)?\s{0,200}<(?:[a-zA-Z!?])", {}, opens=False)
FORMATS = (
    _format("PNG", "image", rb"\x89PNG\r\n\x1a\n", {"image/png": ".png"}),
    _format("JPEG", "image", rb"\xff\xd8\xff", dict.fromkeys(("image/jpeg", "image/jpg"), ".jpg .jpeg .jpe .jfif")),
    _format("GIF", "image", rb"GIF8[79]a", {"image/gif": ".gif"}),
    _format("WebP", "image", rb"RIFF.{4}WEBP", {"image/webp": ".webp"}),
    # Its brand, or one of the brands with which it says that it is compatible.
    _format("AVIF", "image", rb".{4}ftyp(?:m(?:if|sf)1.{4}(?:.{4}){0,8}?)?avi[fs]", {"image/avif": ".avif .avifs"}),
    _format("WAV", "audio", rb"RIFF.{4}WAVE", dict.fromkeys(_WAV, ".wav .wave")),
    _format("FLAC", "audio", rb"fLaC", dict.fromkeys(("audio/flac", "audio/x-flac"), ".flac")),
    _format("AAC", "audio", rb"\xff[\xf0\xf1\xf8\xf9]", dict.fromkeys(("audio/aac", "audio/aacp"), ".aac")),
    # Not FF FE, with which texts in UTF-16 begin.
    _format(
        "MP3",
        "audio",
        rb"ID3|\xff[\xe2-\xe7\xf2-\xf7\xfa-\xfd]",
        {"audio/mpeg": ".mp3 .mp2 .mpga", "audio/mp3": ".mp3"},
    ),
    _format(
        "Ogg",
        "audio",
        rb"OggS",
        {"audio/ogg": ".ogg .oga .opus .spx", "video/ogg": ".ogv .ogg", "application/ogg": ".ogx .ogg"},
    ),
    _format(
        "MPEG-4 audio",
        "audio",
        rb".{4}ftypM4A",
        {"audio/mp4": ".m4a .mp4", "audio/x-m4a": ".m4a", "audio/m4a": ".m4a"},
    ),
    _format(
        "HEIF",
        "binary",
        rb".{4}ftyp(?:hei[cmsx]|hev[cmsx]|mif1|msf1)",
        dict.fromkeys(_HEIF, ".heic .heif"),
        opens=False,
    ),
    _format(
        "MP4",
        "video",
        rb".{4}ftyp",
        {"video/mp4": ".mp4 .m4v", "audio/mp4": ".m4a .mp4", "video/quicktime": ".mov .qt", "audio/x-m4a": ".m4a"},
    ),
    _format("WebM", "video", rb"\x1a\x45\xdf\xa3.{0,60}webm", {"video/webm": ".webm", "audio/webm": ".webm .weba"}),
    _format("Matroska", "binary", rb"\x1a\x45\xdf\xa3", _MATROSKA, opens=False),
    _format("PDF", "binary", rb"%PDF-", {"application/pdf": ".pdf"}),
    ACTIVE,
)


def format_of(data: bytes) -> Format | None:
    """None if the bytes match no known format."""
    return next((one for one in FORMATS if one.begins.match(data)), None)


def declared_format(mime: str) -> Format | None:
    """The format that a type without parameters promises."""
    return next((one for one in FORMATS if mime in one.mimes), None)


def extensions_of(mime: str) -> tuple[str, ...]:
    """File extensions of a type, the usual one first; empty for a type that is not listed here."""
    found = declared_format(mime)
    return found.mimes[mime] if found is not None else ()


def kind_of(mime: str, found: Format) -> str:
    """A container that can hold audio or video is what its server declares."""
    said = mime.partition("/")[0]
    return said if said in ("audio", "video") and mime in found.mimes else found.kind


def mismatch(mime: str, data: bytes) -> str:
    """A message for people if the declared type does not match the bytes; empty if nothing is wrong."""
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
