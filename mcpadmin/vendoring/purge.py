"""The part of a style sheet that the pages use: a twentieth of the whole framework."""

import re
from collections.abc import Collection, Iterable

import tinycss2
from tinycss2.ast import (
    AtRule,
    Comment,
    Declaration,
    FunctionBlock,
    HashToken,
    IdentToken,
    LiteralToken,
    Node,
    QualifiedRule,
)

from mcpadmin.vendoring.npm import VendorError

_CONTAINERS = {"media", "supports", "layer", "container"}
_ALTERNATIVES = {"is", "where", "has", "matches", "any", "-webkit-any", "-moz-any"}
_REFERENCE = re.compile(r"var\(\s*(--[\w-]+)")


def purge(css: str, classes: Collection[str], elsewhere: str = "") -> str:
    """The rules that can match elements with these classes only, and the custom properties and keyframes that these
    rules or `elsewhere` (other style sheets) use. License comments (`/*!`) stay. Raises VendorError for a class that
    no rule names."""
    wanted = set(classes)
    named = set(re.findall(r"\.(-?[A-Za-z_][\w-]*)", css))
    if missing := sorted(wanted - named):
        raise VendorError(f"no rule of the style sheet names the class {', '.join(missing)}: correct vendor.toml")
    kept = _rules(tinycss2.parse_stylesheet(css, skip_whitespace=True), wanted)
    while True:  # properties that a dropped rule used may now be unused
        fewer = _used(tinycss2.parse_stylesheet(kept, skip_whitespace=True), kept + elsewhere)
        if fewer == kept:
            return kept
        kept = fewer


def _rules(rules: Iterable[Node], classes: set[str]) -> str:
    written = []
    for rule in rules:
        if isinstance(rule, Comment):
            if rule.value.startswith("!"):
                written.append(f"/*{rule.value}*/\n")
        elif isinstance(rule, QualifiedRule):
            selectors = [one for one in _split(rule.prelude) if _can_match(one, classes)]
            if selectors:
                selector = ",".join(tinycss2.serialize(one).strip() for one in selectors)
                written.append(f"{selector}{{{tinycss2.serialize(rule.content)}}}\n")
        elif isinstance(rule, AtRule) and rule.lower_at_keyword in _CONTAINERS and rule.content is not None:
            inner = _rules(tinycss2.parse_rule_list(rule.content, skip_whitespace=True), classes)
            if inner:
                written.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}\n")
        else:
            written.append(rule.serialize() + "\n")
    return "".join(written)


def _split(tokens: Iterable[Node]) -> list[list[Node]]:
    parts: list[list[Node]] = [[]]
    for token in tokens:
        if isinstance(token, LiteralToken) and token.value == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _can_match(selector: list[Node], classes: set[str]) -> bool:
    before = ""
    for token in selector:
        if isinstance(token, HashToken):
            return False
        if isinstance(token, IdentToken) and before == "." and token.value not in classes:
            return False
        if isinstance(token, FunctionBlock) and token.lower_name in _ALTERNATIVES:
            alternatives = _split(token.arguments)
            if not any(_can_match(one, classes) for one in alternatives):
                return False
        before = token.value if isinstance(token, LiteralToken) else ""
    return True


def _used(rules: Iterable[Node], text: str) -> str:
    properties = set(_REFERENCE.findall(text))
    animations = set(re.findall(r"[\w-]+", " ".join(re.findall(r"animation(?:-name)?\s*:\s*([^;}]*)", text))))
    written = []
    for rule in rules:
        if isinstance(rule, QualifiedRule):
            declarations = [
                one.serialize()
                for one in tinycss2.parse_blocks_contents(rule.content, skip_comments=True, skip_whitespace=True)
                if not (isinstance(one, Declaration) and one.name.startswith("--") and one.name not in properties)
            ]
            if declarations:
                written.append(f"{tinycss2.serialize(rule.prelude)}{{{';'.join(declarations)}}}\n")
        elif isinstance(rule, AtRule) and rule.lower_at_keyword in _CONTAINERS and rule.content is not None:
            inner = _used(tinycss2.parse_rule_list(rule.content, skip_whitespace=True), text)
            if inner:
                written.append(f"@{rule.at_keyword}{tinycss2.serialize(rule.prelude)}{{{inner}}}\n")
        elif isinstance(rule, AtRule) and rule.lower_at_keyword.endswith("keyframes"):
            if tinycss2.serialize(rule.prelude).strip() in animations:
                written.append(rule.serialize() + "\n")
        elif isinstance(rule, AtRule) and rule.lower_at_keyword == "property":
            if tinycss2.serialize(rule.prelude).strip() in properties:
                written.append(rule.serialize() + "\n")
        else:
            written.append(rule.serialize() + "\n")
    return "".join(written)
