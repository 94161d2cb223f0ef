"""Modules become one script for the shell and one for each page, and behave as they did alone."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from mcpadmin.up import assets, bundles
from servers.kit.styles import BUNDLE, STYLES

STATIC = Path(settings.BASE_DIR) / "static"
NODE = shutil.which("node") or ""
TEMPLATES = Path(settings.BASE_DIR) / "templates"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = settings.STATIC_ROOT
    settings.STATIC_ROOT = tmp_path_factory.mktemp("collected") / "static"
    try:
        assets.collect()
        return Path(settings.STATIC_ROOT)
    finally:
        settings.STATIC_ROOT = root


def entries() -> set[str]:
    return {
        name for path in TEMPLATES.rglob("*.html") for name in re.findall(r'static "js/([\w-]+)\.js"', path.read_text())
    }


def test_a_page_loads_nothing_but_its_script_and_that_of_the_shell(collected: Path) -> None:
    paths = json.loads((collected / assets.MANIFEST).read_text())["paths"]
    for name in entries() - {"app", "early"}:
        text = (collected / paths[f"js/{name}.js"]).read_text()
        loaded = set(re.findall(r"""^import [^'"\n]*['"]([^'"\n]+)""", text, re.MULTILINE))
        assert loaded <= {f"./{Path(paths['js/app.js']).name}"}, name
    assert not re.search(
        r"^import\b(?!\(document\.)|import\('", (collected / paths["js/app.js"]).read_text(), re.MULTILINE
    )


def test_two_scripts_of_one_page_never_have_the_same_module_twice() -> None:
    """Each would have its own state."""
    modules = {path.stem: bundles.Module(path.stem, path.read_text()) for path in (STATIC / "js").glob("*.js")}
    shell = {one for name in (*bundles.SHARED, bundles.SHELL) for one in bundles._with_imports(modules, name)}
    late = {"palette", "json-view", "result-links"}
    for path in TEMPLATES.rglob("*.html"):
        loaded = set(re.findall(r'static "js/([\w-]+)\.js"', path.read_text())) - {"early", "app", "bare"} - late
        if "servers/base.html" in path.read_text():
            loaded.add("servers")
        found = [one for name in loaded | late for one in set(bundles._with_imports(modules, name)) - shell]
        assert len(found) == len(set(found)), path


@pytest.mark.skipif(not NODE, reason="node is missing")
def test_names_are_passed_on_as_they_are_written(tmp_path: Path) -> None:
    sources = {
        "app": "import { one as first, add } from './lib.js';\nimport './effect.js';\nglobalThis.seen = add(first, 1);\n",
        "lib": "/* A comment. */\nexport const one = 1;\nfunction plus(a, b) {\n  return a + b;\n}\nexport { plus as add };\n",
        "effect": "globalThis.effects = (globalThis.effects ?? 0) + 1;\n",
        "page": "import { add } from './lib.js';\nimport { twice } from './own.js';\nglobalThis.paged = twice(add(2, 3));\n",
        "own": "import { one } from './lib.js';\nexport async function never() {}\nexport function twice(n) {\n  return 2 * n * one;\n}\n",
        **dict.fromkeys(bundles.SHARED, ""),
    }
    _write(tmp_path, sources)
    bundles.write(tmp_path)
    check = "import './app.js'; import './page.js'; console.log(JSON.stringify([seen, effects, paged]));"
    (tmp_path / "js" / "check.mjs").write_text(check)
    (tmp_path / "js" / "package.json").write_text('{"type": "module"}')
    said = subprocess.run([NODE, "check.mjs"], cwd=tmp_path / "js", capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [2, 1, 10]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("export default 7;\n", "cannot be bundled: export default 7;"),
        ("export let changing = 1;\n", "cannot be bundled: export let changing = 1;"),
        ("import all from './lib.js';\n", "cannot be bundled: import all from"),
        ("import { app } from './app.js';\nexport const lib = app;\n", "imports itself"),
        ("export const lib = `a\n  b`;\n", "template literal of several lines"),
        ("import { gone } from './gone.js';\n", "imports gone, which does not exist"),
    ],
)
def test_what_cannot_be_bundled_stops_the_collection(tmp_path: Path, source: str, words: str) -> None:
    shared: dict[str, Any] = dict.fromkeys(bundles.SHARED, "")
    _write(tmp_path, {"app": "import { lib } from './lib.js';\nexport const app = lib;\n", "lib": source, **shared})
    with pytest.raises(bundles.BundleError, match=words):
        bundles.write(tmp_path)


def _write(folder: Path, sources: dict[str, str]) -> None:
    (folder / "js").mkdir()
    for name, source in sources.items():
        (folder / "js" / f"{name}.js").write_text(source)
    for style in (*STYLES, BUNDLE):
        (folder / style).parent.mkdir(parents=True, exist_ok=True)
        (folder / style).write_text("")


def test_remarks_at_the_end_of_a_line_are_left_out_and_strings_stay_whole() -> None:
    source = "const place = 'https://host // path'; // where it is\nconst shown = `a // ${place}`;\n"
    assert (
        bundles.Module("one", source).body == "const place = 'https://host // path';\nconst shown = `a // ${place}`;\n"
    )
