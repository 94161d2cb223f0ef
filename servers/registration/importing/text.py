"""From text to objects: JSON, JSON with comments, JSON5, TOML and YAML, with the prose of a README around them.

Runs in a process of its own (`text_child`), because none of these parsers can be trusted to finish soon: nothing else
of mcpadmin may be imported here. Names that occur twice in one object are kept in `Pairs.doubles`, because nobody can
know which of the two is meant.
"""

import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import json5
import yaml

MAX_BLOCKS = 50
#: a dotted TOML key costs the square of its parts
_MAX_DOTS = 1_000
_POSITION = re.compile(r"<string>:(\d+) .* column (\d+)", re.DOTALL)
_FRAGMENT = re.compile(r'"[^"\n]{1,500}"\s*:')
_FENCE = re.compile(r"[ \t>]*(?:[-*+]|\d{1,3}\.)?[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)")
_SHELL = frozenset({"bash", "sh", "shell", "console", "zsh", "powershell", "ps1", "bat", "cmd", "diff", "python", "py"})
# An object as the argument of a command, such as `code --add-mcp '{…}'`.
_IN_COMMAND = re.compile(r"[\w./-]+ [^\n{]{0,300}?['\"](?=\{\s*\")")
_OBJECT = re.compile(r"^[ \t>]*(?=[{\[])", re.MULTILINE)
_TABLE = re.compile(r"^\[\[?[\w.\"' -]+\]\]?[ \t]*(?:#.*)?$", re.MULTILINE)
_SETTING = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*[\w.\"' -]+=")
_NEXT = re.compile(r"[\s,;]*(?=[{\[])")
# Outside strings: comments, an ellipsis for "and so on", punctuation. Each alternative consumes what it has seen,
# closed or not, so that no text is scanned twice.
_JSONC = re.compile(
    r'(?P<string>"(?:[^"\\\n]|\\[^\n])*"?)|(?P<comment>//[^\n]*|\#[^\n]*|/\*.*?(?:\*/|\Z))|(?P<dots>\.{3}|…)'
    r"|(?P<blank>\s+)|(?P<other>[^\"/#.…\s,{}\[\]]+|.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Bounds:
    """The limits of servers.limits for these parsers. The YAML and TOML parsers are slower than JSON's, and the JSON5
    parser takes 40 microseconds per character."""

    import_yaml_bytes: int
    import_json5_bytes: int
    import_depth: int


class Unreadable(Exception):
    """A message for people, which quotes only names from the text. `limit`: the name of the exceeded limit."""

    def __init__(self, words: str, code: str, limit: str = "") -> None:
        super().__init__(words)
        self.words, self.code, self.limit = words, code, limit


def too_deep() -> Unreadable:
    return Unreadable("Nested too deeply for a configuration.", "depth", "import_depth")


class Pairs(dict[str, Any]):
    """An object of the document."""

    doubles: tuple[str, ...] = ()


class OtherValue:
    """A value that no configuration contains: a TOML date, a YAML set."""


@dataclass(frozen=True)
class JsonPart:
    """`beside`: there is more text before or after the value."""

    value: Any
    beside: bool = False


def parts(text: str, bounds: Bounds) -> Iterator[JsonPart]:
    """The values that may be configurations: of the whole text, or of each code block in it. Raises Unreadable where
    the whole text is one value and is broken; a code block that cannot be read is passed over."""
    blocks = _blocks(text) if "```" in text or "~~~" in text else []
    if not blocks:
        yield from _parsed(text, bounds)
        return
    broken: Unreadable | None = None
    read, slow = False, bounds.import_yaml_bytes
    for block in blocks[:MAX_BLOCKS]:
        if not _is_json(block):
            slow -= len(block)
        try:
            if slow < 0:
                raise Unreadable("The code blocks that are not JSON are too large.", "size", "import_yaml_bytes")
            for part in _parsed(block, bounds):
                yield JsonPart(part.value, beside=True)
            read = True
        except Unreadable as problem:
            broken = broken or problem
            bounds = replace(bounds, import_json5_bytes=max(0, bounds.import_json5_bytes - len(block)))
    if not read and broken is not None:
        raise broken


def _blocks(text: str) -> list[str]:
    """The code blocks of Markdown that are not commands."""
    found: list[str] = []
    lines: list[str] = []
    fence, keep = "", False
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if not fence and mark:
            fence, lines, keep = mark[1], [], mark[2].lower() not in _SHELL
        elif fence and line.strip(" \t>").startswith(fence) and not line.strip(" \t>").strip(fence[0]):
            if keep and (block := textwrap.dedent("\n".join(lines)).strip()):
                found.append(block)
            fence = ""
        elif fence:
            lines.append(line)
    return found


def _is_json(text: str) -> bool:
    return text[0] in "{/[" or bool(_FRAGMENT.match(text))


def _parsed(text: str, bounds: Bounds) -> list[JsonPart]:
    found = _by_format(text, bounds)
    require_depth([part.value for part in found], bounds.import_depth)
    return found


def require_depth(values: list[Any], most: int) -> None:
    """Unreadable if one of them is nested deeper."""
    level = values
    for _ in range(most + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise too_deep()


def is_json(text: str) -> bool:
    """Whether it begins as an object, or as a list of objects."""
    return text[0] in "{/" or bool(re.match(r"\[\s*[{\]]", text))


def _by_format(text: str, bounds: Bounds) -> list[JsonPart]:
    try:
        if is_json(text):
            return _json(text, bounds)
        if _FRAGMENT.match(text):  # copied from inside a file
            return _json("{" + text.rstrip().rstrip(",") + "}", bounds)
        if _SETTING.match(text):
            return [JsonPart(_toml(text, bounds))]
        if (table := _TABLE.search(text)) is not None:
            return [JsonPart(_toml(text[table.start() :], bounds), beside=bool(table.start()))]
        if (start := _OBJECT.search(text)) is not None and _is_prose(text[: start.start()]):
            return [JsonPart(part.value, beside=True) for part in _json(text[start.end() :], bounds)]
        if (start := _IN_COMMAND.match(text)) is not None:
            return [JsonPart(part.value, beside=True) for part in _json(text[start.end() :], bounds)]
        return [JsonPart(_yaml(text, bounds))]
    except RecursionError:
        raise too_deep() from None


def _is_prose(text: str) -> bool:
    """Comments or sentences before an object; in YAML, an object stands behind its name."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return not re.search(r"^[\w.\"'/-]+:$", lines[-1]) or len(lines) == 1 if lines else True


# --- JSON --------------------------------------------------------------------------------------------------------------
def _json(text: str, bounds: Bounds) -> list[JsonPart]:
    """The object, or several in a row."""
    decoder = json.JSONDecoder(object_pairs_hook=pairs_of, parse_constant=no_constant)
    try:
        return [JsonPart(decoder.decode(text))]
    except json.JSONDecodeError:
        pass
    except ValueError:
        raise Unreadable("Invalid JSON: it contains a number that cannot be read.", "json") from None
    found: list[Any] = []
    plain, at = without_comments(text), 0
    try:
        while len(found) < MAX_BLOCKS and (start := _NEXT.match(plain, at)) is not None:
            value, at = decoder.raw_decode(plain, start.end())
            found.append(value)
    except json.JSONDecodeError as strict:
        if not found:
            return [JsonPart(_json5(text, strict, bounds))]
    except ValueError:
        raise Unreadable("Invalid JSON: it contains a number that cannot be read.", "json") from None
    return [JsonPart(value, beside=bool(plain[at:].strip(" \t\r\n,;}])`'\""))) for value in found]


def without_comments(text: str) -> str:
    """Strict JSON from text with comments, an ellipsis or extra commas; each line keeps its length."""
    out: list[str] = []
    comma, before = -1, ""  # the last comma, and the last token that is neither blank nor comment
    for found in _JSONC.finditer(text):
        kind, piece = found.lastgroup, found[0]
        if kind in ("comment", "dots"):
            out.append(re.sub(r"[^\n]", " ", piece))
            continue
        if kind == "blank":
            out.append(piece)
            continue
        if piece == "," and before in ("", "{", "[", ","):
            out.append(" ")
            continue
        if piece in "}]" and before == ",":
            out[comma] = " "
        if piece == ",":
            comma = len(out)
        out.append(piece)
        before = piece
    return "".join(out)


def _json5(text: str, strict: json.JSONDecodeError, bounds: Bounds) -> Any:
    where = f"line {strict.lineno}, column {strict.colno}"
    if len(text) > bounds.import_json5_bytes:
        words = f"Invalid JSON at {where}, and too large to be read as JSON5."
        raise Unreadable(words, "json", "import_json5_bytes")
    try:
        return json5.loads(text, object_pairs_hook=pairs_of, parse_constant=no_constant)
    except ValueError as exc:
        if found := _POSITION.match(str(exc)):
            where = f"line {found[1]}, column {found[2]}"
        raise Unreadable(f"Invalid JSON at {where}.", "json") from None


def pairs_of(items: Iterable[tuple[str, Any]]) -> Pairs:
    items = list(items)
    found = Pairs(items)
    if len(found) != len(items):
        found.doubles = tuple(name for name, count in Counter(name for name, _ in items).items() if count > 1)
    return found


def no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# --- TOML --------------------------------------------------------------------------------------------------------------
def _toml(text: str, bounds: Bounds) -> Any:
    if len(text) > bounds.import_yaml_bytes or any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise Unreadable("This is not JSON, and it is too large to be read as TOML.", "size", "import_yaml_bytes")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        where = re.search(r"line \d+, column \d+|end of document", str(exc))
        place = f" ({where[0]})" if where else ""
        raise Unreadable(f"This is not valid TOML{place}.", "toml") from None
    except ValueError:
        raise Unreadable("Invalid TOML: it contains a number that cannot be read.", "toml") from None


# --- YAML --------------------------------------------------------------------------------------------------------------
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml where it is installed
    """Core schema of YAML 1.2 without floats: `yes`, `1.10` and `0777` stay text, as a process should receive them."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def construct_pairs_of(self, node: yaml.MappingNode) -> Pairs:
        items = [
            (self.construct_object(key, deep=True), self.construct_object(value, deep=True))
            for key, value in node.value
        ]
        if any(not isinstance(key, str | int) for key, _ in items):
            raise Unreadable("A key in this YAML is not text.", "yaml")
        return pairs_of([(str(key), value) for key, value in items])


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"-?(?:0|[1-9][0-9]{0,15})\Z"), list("-0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_pairs_of)


def _yaml(text: str, bounds: Bounds) -> Any:
    if len(text) > bounds.import_yaml_bytes:
        raise Unreadable("This is not JSON, and it is too large to be read as YAML.", "size", "import_yaml_bytes")
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                raise Unreadable("YAML aliases (*name) are not supported. Write the value out.", "yaml")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > bounds.import_depth:
                raise too_deep()
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a subclass of the safe loader
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise Unreadable(f"This is not valid JSON, TOML or YAML{place}.", "yaml") from None
    except (yaml.YAMLError, ValueError):
        raise Unreadable("This is not valid JSON, TOML or YAML.", "yaml") from None
