"""The first load of a signed-in page takes at most 150 kB, as WhiteNoise sends it (brotli)."""

import re
from pathlib import Path

import brotli
from django.conf import settings

STATIC = Path(settings.BASE_DIR) / "static"
SHELL = Path(settings.BASE_DIR) / "templates" / "shell"
BUDGET = 150_000


def _linked() -> set[Path]:
    markup = "".join((SHELL / name).read_text() for name in ("_document.html", "_styles.html", "base.html"))
    return {STATIC / name for name in re.findall(r"{% static \"([^\"]+)\" %}", markup)}


def _with_imports(script: Path, seen: set[Path]) -> set[Path]:
    seen.add(script)
    for name in re.findall(r"from '(\./[^']+)'", script.read_text()):
        if (neighbour := (script.parent / name).resolve()) not in seen:
            _with_imports(neighbour, seen)
    return seen


def _sent(path: Path) -> int:
    content = path.read_bytes()
    return len(content) if path.suffix == ".woff2" else len(brotli.compress(content))


def test_the_first_load_stays_within_its_budget() -> None:
    files = _linked() | _with_imports(STATIC / "js" / "app.js", set())
    sizes = {path.relative_to(STATIC).as_posix(): _sent(path) for path in files}
    assert {"vendor/tabler/tabler.min.css", "js/live.js", "vendor/inter/inter-latin.woff2"} <= sizes.keys()
    assert sum(sizes.values()) <= BUDGET, sorted(sizes.items(), key=lambda item: -item[1])
