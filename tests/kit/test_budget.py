"""What the shell of a signed-in page takes, as WhiteNoise sends it. tests/e2e/test_weight.py measures whole pages."""

import re
from pathlib import Path

import pytest
from django.conf import settings

from mcpadmin.up import assets
from servers.kit.styles import BUNDLE

SHELL = Path(settings.BASE_DIR) / "templates" / "shell"
BUDGET = 125_000


def test_the_shell_stays_within_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "STATIC_ROOT", tmp_path / "static")
    assets.collect()
    markup = "".join((SHELL / name).read_text() for name in ("_document.html", "base.html"))
    late = {"js/palette.js", "js/json-view.js", "js/result-links.js", "img/favicon-waiting.svg"}
    linked = {BUNDLE, *re.findall(r'{% static "([^"]+)" %}', markup)} - late
    sizes = {name: _sent(tmp_path / "static" / name) for name in linked}
    assert {BUNDLE, "js/app.js", "js/early.js", "vendor/inter/inter-latin.woff2"} <= sizes.keys()
    assert sum(sizes.values()) <= BUDGET, sorted(sizes.items(), key=lambda item: -item[1])


def _sent(path: Path) -> int:
    hashed = [one for one in path.parent.glob(f"{path.stem}.*{path.suffix}.br") if one.name != f"{path.name}.br"]
    return (hashed[0] if hashed else path).stat().st_size
