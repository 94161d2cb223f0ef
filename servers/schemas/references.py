"""Local references of one schema document: by JSON pointer (RFC 6901), anchor, or the `$id` of the document or of a part
of it. Nothing is fetched.

If readers of JSON Schema would disagree on the target, there is none: a form then shows JSON, a comparison and a mask
assume the worst.

Source: JSON Schema 2020-12 *Core* 8.2 and 9.3, draft-07 8.2.3 (`"$id": "#name"`).
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urljoin, urlsplit

from servers.schemas.pointer import segments, unescape
from servers.schemas.values import same
from servers.schemas.vocabulary import ANCHORS, DATA, NAMED

#: the longest allowed chain of $ref and allOf for one value
MAX_CHAIN: Final = 16

#: where every reader of the older drafts looks for parts with an `$id`
_OLD_PLACES: Final = frozenset(
    {"properties", "patternProperties", "definitions", "items", "additionalProperties", "not"}
    | {"allOf", "anyOf", "oneOf"}
)
_PLACES: Final = _OLD_PLACES | (
    {"$defs", "dependentSchemas", "prefixItems", "contains", "propertyNames", "if", "then", "else"}
)
#: base URI of a document that does not declare one
_HERE: Final = "http://schema.invalid/"
_JOINED_SCHEMES: Final = ("http", "https")


class Unresolvable(Exception):
    """The reference leads to no schema in this document; the message says why. `foreign`: the target is certainly in
    another document."""

    def __init__(self, why: str, *, foreign: bool = False) -> None:
        super().__init__(why)
        self.foreign = foreign


class References:
    """`spend` is called for each part that a search visits; it may raise what its caller catches. Parts of the document
    are identified by id(), so the document must live as long as this object."""

    def __init__(self, root: Any, spend: Callable[[], None]) -> None:
        self._root, self._spend = root, spend
        self._survey: _Survey | None = None

    def target(self, ref: Any, within: Any, *, dynamic: bool = False) -> Any:
        """The target of a `$ref` in the schema `within`; `dynamic`: a `$dynamicRef` or `$recursiveRef`. Raises
        Unresolvable."""
        if not isinstance(ref, str):
            raise Unresolvable("The schema is not valid here: “$ref” must be text.")
        survey = self._surveyed()
        if dynamic and survey.parts_have_ids:
            raise Unresolvable("This part refers to a definition that depends on where it is used.")
        uri, _, fragment = ref.partition("#")
        base = _joined(survey.base_of(within), uri)
        if base is None or (uri and survey.doubtful):
            raise _missing()
        if base not in survey.resources:
            foreign = not survey.has_ids and base.startswith(("http://", "https://")) and not base.startswith(_HERE)
            raise Unresolvable("This part refers to another document, which is never fetched.", foreign=foreign)
        if not fragment:
            return _only(survey.resources[base])
        if fragment.startswith("/"):
            return self._walk(_only(survey.resources[base]), unquote(fragment))
        return _only(survey.anchors.get((base, unquote(fragment)), []))

    def same_text_may_differ(self) -> bool:
        """Whether the same reference may have another target elsewhere in the document."""
        return self._surveyed().parts_have_ids

    def _surveyed(self) -> "_Survey":
        if self._survey is None:
            self._survey = _Survey(self._root, self._spend)
        return self._survey

    def _walk(self, target: Any, pointer: str) -> Any:
        for segment in segments(pointer):
            self._spend()
            key = unescape(segment)
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(target):
                target = target[int(key[:9])]
            else:
                raise _missing()
        return target


class _Survey:
    """Where the parts of a document are. The base of a part is None if readers would not agree on it; the document is
    then doubtful, because any name may refer to that part."""

    def __init__(self, root: Any, spend: Callable[[], None]) -> None:
        self._root = root
        self._dialect = root.get("$schema") if isinstance(root, dict) else None
        old = isinstance(self._dialect, str) and "/draft-0" in self._dialect
        self._id = "id" if old and "/draft-04" in str(self._dialect) else "$id"
        self._places = _OLD_PLACES if old else _PLACES
        self.has_ids = self.parts_have_ids = self.doubtful = False
        self.resources: dict[str, list[Any]] = {_HERE: [root]}
        self.anchors: dict[tuple[str | None, str], list[Any]] = {}
        self._bases: dict[int, str | None] = {}
        waiting: list[tuple[Any, str | None, bool, bool]] = [(root, _HERE, False, True)]
        while waiting:
            spend()
            part, base, named, sure = waiting.pop()
            if isinstance(part, dict):
                if not named:
                    base = self._base(part, base, sure)
                self._bases[id(part)] = base
            waiting.extend(self._below(part, base, named, sure))

    def base_of(self, part: Any) -> str | None:
        """The base URI of a part. A reader may have merged several schemas into one, which then has no location."""
        return self._bases.get(id(part), None if self.parts_have_ids else self._bases.get(id(self._root), _HERE))

    def _base(self, schema: dict[str, Any], base: str | None, sure: bool) -> str | None:
        declared = schema.get(self._id)
        uri, _, fragment = declared.partition("#") if isinstance(declared, str) else ("", "", "")
        if uri:
            self.has_ids = True
            base = _joined(base, uri)
            if schema is not self._root:
                self.parts_have_ids = True
                # Before 2019-09, a `$ref` hides its siblings, and draft-04 differs in what counts as a part.
                agreed = sure and "$ref" not in schema and self._id == "$id"
                if not agreed or schema.get("$schema", self._dialect) != self._dialect:
                    base = None
            if base is None:
                self.doubtful = True
            else:
                self.resources.setdefault(base, []).append(schema)
        for name in (fragment, *(schema.get(key) for key in ANCHORS)):
            if isinstance(name, str) and name:
                self.anchors.setdefault((base, name), []).append(schema)
        return base

    def _below(
        self, part: Any, base: str | None, named: bool, sure: bool
    ) -> Iterator[tuple[Any, str | None, bool, bool]]:
        if isinstance(part, list):
            yield from ((inner, base, False, sure) for inner in part if isinstance(inner, dict | list))
        elif isinstance(part, dict):
            for key, inner in part.items():
                if isinstance(inner, dict | list) and (named or key not in DATA):
                    yield inner, base, not named and key in NAMED, sure and (named or key in self._places)


def _joined(base: str | None, uri: str) -> str | None:
    if base is None or not uri:
        return base
    try:
        if urlsplit(base).scheme not in _JOINED_SCHEMES and not urlsplit(uri).scheme:
            return None
        return urljoin(base, uri)
    except ValueError:
        return None


def _only(found: list[Any]) -> Any:
    """The single schema in `found`. A part may occur several times in a document, but a name must mean only one."""
    if not found or not all(same(found[0], other) for other in found[1:]):
        raise _missing()
    return found[0]


def _missing() -> Unresolvable:
    return Unresolvable("This part refers to a definition that the schema does not have.")
