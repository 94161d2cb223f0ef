"""One style sheet and one script for all signed-in pages, and one more script per page, built from the individual files
when static files are collected. Without a collection (tests, plain manage.py), browsers load the individual files.

The modules are small and plain, so that no JavaScript tool is needed: static imports and exports by name, no default
exports, no exported variable that changes, no cycles, no template literal of several lines. Anything else stops the
collection.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from servers.kit.styles import BUNDLE, STYLES

SHELL = "app"
#: loaded with the shell although only pages import them: a page and what the shell loads later must share one instance
SHARED = ("refresh", "countdown", "call-cards", "sending", "choice")
#: loaded in <head>, before any module
PLAIN = ("early",)

_IMPORT = re.compile(r"^import (?:\{([^}]*)\} from )?'\./([\w-]+)\.js';\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class)\s+([\w$]+))", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*/\*(?!!).*?\*/[ \t]*\n", re.MULTILINE | re.DOTALL)
#: at the end of a line. Within a string, the quote that ends it would follow.
_REMARK = re.compile(r"[ \t]+// (?:[^'\"`\n]|(?<=\w)'(?=\w))*$", re.MULTILINE)
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_EXPORT_LIST = re.compile(r"^export \{([^}]*)\};\n", re.MULTILINE)


class BundleError(Exception):
    """A file cannot be bundled. The message names it."""


class Module:
    """`imports`: module -> [(name there, name here)]. `exports`: name outside -> name inside."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        if any(line.count("`") % 2 for line in source.splitlines()):
            raise BundleError(f"js/{name}.js: a template literal of several lines would lose its indentation")
        source = _REMARK.sub("", _COMMENT.sub("", source))
        self.imports: dict[str, list[tuple[str, str]]] = {}
        for found in _IMPORT.finditer(source):
            self.imports.setdefault(found[2], []).extend(_pairs(found[1] or ""))
        self.exports = {found[1]: found[1] for found in _EXPORT.finditer(source)}
        for found in _EXPORT_LIST.finditer(source):
            self.exports |= {outside: inside for inside, outside in _pairs(found[1])}
        self.body = _EXPORT_LIST.sub("", _EXPORT.sub("", _IMPORT.sub("", source)))
        if left := re.search(r"^(?:import|export)\b.*", self.body, re.MULTILINE):
            raise BundleError(f"js/{name}.js: cannot be bundled: {left[0]}")
        self.body = _INDENT.sub("", self.body)

    @property
    def variable(self) -> str:
        return "$" + self.name.replace("-", "_")

    def wrapped(self) -> str:
        """As a function that runs once and returns what it exports."""
        lines = [
            f"const {{ {', '.join(there if there == here else f'{there}: {here}' for there, here in names)} }}"
            f" = ${other.replace('-', '_')};"
            for other, names in self.imports.items()
            if names
        ]
        exported = ", ".join(out if out == inside else f"{out}: {inside}" for out, inside in self.exports.items())
        inside = "\n".join([*lines, self.body.strip(), *([f"return {{ {exported} }};"] if exported else [])])
        return f"const {self.variable} = (() => {{\n{inside}\n}})();\n"


def _pairs(names: str) -> list[tuple[str, str]]:
    """`a, b as c` -> [(a, a), (b, c)]."""
    found = []
    for one in filter(None, (name.strip() for name in names.split(","))):
        first, _, second = one.partition(" as ")
        found.append((first, second or first))
    return found


def write(folder: Path) -> set[str]:
    """Replaces the bundled files in the folder with copies of all static files. Returns what is new."""
    modules = {
        path.stem: Module(path.stem, path.read_text(encoding="utf-8"))
        for path in sorted((folder / "js").glob("*.js"))
        if path.stem not in PLAIN
    }
    shell = list(dict.fromkeys(name for entry in (*SHARED, SHELL) for name in _with_imports(modules, entry)))
    (folder / "js" / f"{SHELL}.js").write_text(_shell(modules, shell), encoding="utf-8")
    for name, module in modules.items():
        if name not in shell:
            (folder / "js" / f"{name}.js").write_text(_page(modules, module, frozenset(shell)), encoding="utf-8")
    for path in filter(Path.exists, (folder / "js" / f"{name}.js" for name in PLAIN)):
        script = _REMARK.sub("", _COMMENT.sub("", path.read_text(encoding="utf-8")))
        path.write_text(_INDENT.sub("", script), encoding="utf-8")
    styles = "".join(_shortened((folder / style).read_text(encoding="utf-8")) for style in STYLES)
    (folder / BUNDLE).write_text(styles, encoding="utf-8")
    return {BUNDLE}


def _shortened(styles: str) -> str:
    """Without comments, indentation, and spaces and line ends that separate nothing. Licenses stay (`/*!`). Only
    removes comments that begin a line: nothing else may look like a comment there."""
    lines = re.sub(r"^\s+", "", _COMMENT.sub("", styles), flags=re.MULTILINE)
    lines = re.sub(r"^([\w-]+): (?=.*;$)", r"\1:", lines, flags=re.MULTILINE)
    return re.sub(r" (?={)|;(?=})", "", re.sub(r"(?<=[;{},])\n", "", lines))


def _shell(modules: dict[str, Module], shell: Iterable[str]) -> str:
    """The script of the shell, with its modules in one export, from which pages take the ones that they need."""
    parts = [modules[name].wrapped() for name in shell]
    exported = ", ".join(modules[name].variable for name in shell if modules[name].exports)
    return "".join(parts) + f"export const modules = {{ {exported} }};\n"


def _page(modules: dict[str, Module], module: Module, shell: frozenset[str]) -> str:
    """The module with the modules that only it needs, and what they import from the shell."""
    own = list(dict.fromkeys(_with_imports(modules, module.name, shell)))
    needed = sorted(
        {other for name in own for other in modules[name].imports if other in shell and modules[other].exports}
    )
    lines = ["import { modules } from './app.js';\n"] if needed else []
    lines += [f"const {{ {', '.join(modules[name].variable for name in needed)} }} = modules;\n"] if needed else []
    parts = [modules[name].wrapped() for name in own]
    exports = [f"export const {out} = {module.variable}.{out};\n" for out in module.exports]
    return "".join([*lines, *parts, *exports])


def _with_imports(
    modules: dict[str, Module], name: str, stop: frozenset[str] = frozenset(), above: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the modules that it imports, then the module itself."""
    if name in above:
        raise BundleError(f"js/{name}.js imports itself through {' and '.join(above)}")
    if name not in modules:
        raise BundleError(f"js/{above[-1]}.js imports {name}, which does not exist")
    for other in modules[name].imports:
        if other not in stop:
            yield from _with_imports(modules, other, stop, (*above, name))
    yield name
