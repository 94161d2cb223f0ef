"""The vendored files match the lock, and there are no others."""

import json
import re

import pytest

from mcpadmin.vendoring import lock
from mcpadmin.vendoring.cli import main
from mcpadmin.vendoring.copying import _SOURCE_MAP
from mcpadmin.vendoring.manifest import LOCK_FILE, ROOT, read_manifest
from mcpadmin.vendoring.npm import VendorError, integrity_of
from mcpadmin.vendoring.purge import purge


def test_every_vendored_file_is_the_one_in_the_lock() -> None:
    assert lock.problems() == []
    assert main(["--verify"]) == 0


def test_a_changed_byte_a_missing_and_a_foreign_file_are_each_named(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = json.loads(LOCK_FILE.read_text())
    first, second, *_ = sorted(written["files"])
    written["files"][first] = "sha384-wrong"
    del written["files"][second]
    written["files"]["static/vendor/gone.js"] = "sha384-gone"
    changed = tmp_path / "vendor.lock.json"
    changed.write_text(json.dumps(written))
    monkeypatch.setattr(lock, "LOCK_FILE", changed)
    found = lock.problems()
    assert f"{first} was changed by hand" in found
    assert f"{second} is not in the lock" in found
    assert "static/vendor/gone.js is missing" in found


def test_every_package_is_pinned_by_version_and_hash_and_ships_its_license() -> None:
    for package in read_manifest():
        assert re.fullmatch(r"\d+\.\d+\.\d+", package.version)
        assert package.integrity.startswith("sha512-")
        assert (ROOT / "static" / "vendor" / package.folder / "LICENSE").stat().st_size > 300


def test_every_vendored_file_is_used_by_a_page() -> None:
    templates, styles = (ROOT / "templates").rglob("*.html"), (ROOT / "static" / "css").glob("*.css")
    pages = [*templates, *styles, ROOT / "servers" / "kit" / "styles.py"]
    used = "".join(path.read_text() for path in pages)
    files = [path for path in lock.vendored_files() if path.name not in ("LICENSE", "icons.svg")]
    assert [path.name for path in files if path.name not in used] == []


def test_no_vendored_file_points_to_a_source_map_that_does_not_exist() -> None:
    for path in lock.vendored_files():
        if path.suffix in {".js", ".css"}:
            assert "sourceMappingURL" not in path.read_text()
    assert _SOURCE_MAP.sub("", "a{}\n/*# sourceMappingURL=x.css.map */\n") == "a{}"
    assert _SOURCE_MAP.sub("", "f()\n//# sourceMappingURL=x.js.map") == "f()"


def test_the_integrity_is_written_as_npm_writes_it() -> None:
    assert integrity_of(b"").startswith("sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kx")


SHEET = """@charset "UTF-8";/*! license */ /* note */
:root{--used:1px;--by-used:2px;--unused:3px}
*,body{margin:var(--used)}
.btn,.badge{padding:0}
.btn:not(.badge){color:red}
:is(.badge,.btn) p{color:blue}
:is(.badge,.card) p{color:green}
.btn .badge{color:grey}
#one{color:red}
@media (width>1px){.btn{--used:var(--by-used);animation:spin 1s}.badge{color:red}}
@media print{.badge{color:red}}
@keyframes spin{to{rotate:1turn}}
@keyframes fade{to{opacity:0}}
.badge{animation:fade 1s;width:var(--unused)}
"""


def test_of_a_style_sheet_what_cannot_match_is_left_out() -> None:
    assert purge(SHEET, {"btn"}).split("\n") == [
        '@charset "UTF-8";',
        "/*! license */",
        ":root{--used:1px;--by-used:2px}",
        "*,body{margin:var(--used)}",
        ".btn{padding:0}",
        ".btn:not(.badge){color:red}",
        ":is(.badge,.btn) p{color:blue}",
        "@media (width>1px){.btn{--used:var(--by-used);animation:spin 1s}",
        "}",
        "@keyframes spin{to{rotate:1turn}}",
        "",
    ]
    assert "--unused:3px" in purge(SHEET, {"btn"}, elsewhere=".own{width:var(--unused)}")


def test_a_class_that_the_style_sheet_does_not_know_is_named() -> None:
    with pytest.raises(VendorError, match="names the class gone"):
        purge(SHEET, {"btn", "gone"})


def test_pages_use_every_class_that_is_kept() -> None:
    sources = [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static" / "js").glob("*.js")]
    words = set(re.findall(r"[\w-]+", "".join(path.read_text() for path in sources)))
    assert [name for package in read_manifest() for name in package.classes if name not in words] == []
