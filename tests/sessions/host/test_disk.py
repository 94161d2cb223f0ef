"""The disk space that confined servers take in their own folders."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessions.connections.process_page import disk_excess
from sessions.host import disk, trees
from sessions.host.disk import DiskMeter
from sessions.mcp.transports.stdio import processes
from tests.sessions.host.test_stdio_surroundings import NOBODY, nested

MIB = 1024**2


def written(folder: Path, mib: int) -> str:
    folder.mkdir()
    (folder / "file").write_bytes(b"x" * mib * MIB)
    return str(folder)


def test_a_server_whose_folders_together_take_too_much_is_named_until_it_takes_less(tmp_path: Path) -> None:
    meter, folders = (
        DiskMeter(),
        {1: (written(tmp_path / "home", 3), written(tmp_path / "tmp", 3)), 2: (written(tmp_path / "other", 3),)},
    )
    over = meter.excess(folders, 5 * MIB)
    assert list(over) == [1]
    assert over[1].size >= 6 * MIB
    assert list(meter.excess(folders, 5 * MIB)) == [1]  # the disk is not fuller, but it was over
    (tmp_path / "home" / "file").unlink()
    assert meter.excess(folders, 5 * MIB) == {}


def test_links_are_not_followed_and_folders_that_are_gone_do_no_harm(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere", 8)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "elsewhere")
    assert DiskMeter().excess({1: (str(tmp_path / "home"),), 2: (str(tmp_path / "gone"),)}, MIB) == {}


@pytest.fixture
def folder() -> Iterator[Path]:
    """pytest cannot remove what is nested as deep as here."""
    made = Path(tempfile.mkdtemp())
    yield made
    assert trees.remove(made) == []


@pytest.mark.parametrize(("levels", "name"), [(1_500, "a"), (17, "b" * 250)])
def test_what_lies_deeper_than_a_path_can_name_is_counted(folder: Path, levels: int, name: str) -> None:
    written(folder / "before", 1)
    nested(folder, levels, name, b"x" * 3 * MIB)
    written(folder / "behind", 1)
    assert DiskMeter().excess({1: (str(folder),)}, 12 * MIB) == {}
    assert DiskMeter().excess({1: (str(folder),)}, 5 * MIB)[1].files == levels + 5
    assert len(os.listdir(folder)) == 3


@pytest.mark.parametrize("mode", [0o300, 0o600, 0])
def test_what_lies_in_a_folder_that_its_server_closed_is_counted(folder: Path, mode: int) -> None:
    user = NOBODY if os.geteuid() == 0 else None
    if user is not None:
        os.chown(folder, user, user)
    with processes.acting_as(user):
        written(folder / "closed", 3)
        (folder / "closed").chmod(mode)
        assert DiskMeter().excess({1: (str(folder),)}, 2 * MIB).keys() == {1}


def test_a_closed_folder_that_becomes_a_link_while_it_is_measured_gives_no_one_rights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = folder.parent / "keyring.json"
    keys.write_text("{}")
    keys.chmod(0o600)
    closed, opened = folder / "closed", os.open
    closed.mkdir(mode=0)

    def swapped(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if str(path).endswith("closed") and not closed.is_symlink() and not flags & getattr(os, "O_PATH", 0):
            closed.rmdir()
            closed.symlink_to(keys)
            raise PermissionError(errno.EACCES, "closed")
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", swapped)
    DiskMeter().excess({1: (str(folder),)}, MIB)
    assert closed.is_symlink()
    assert keys.stat().st_mode & 0o777 == 0o600


def test_a_server_with_too_many_files_is_told_so_and_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(disk, "MOST_FILES", 3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    over = DiskMeter().excess({1: (str(tmp_path),)}, MIB)
    assert over[1].files == 4
    settings.STDIO_DISK_MIB = 1
    words = disk_excess(over[1].size, f"{tmp_path}/home")
    assert "hold too many files. Limit: 1,000,000 files" in words
    assert "set MCPADMIN_STDIO_DISK_MIB to 0" in words
    assert "take 2 MiB of disk; 1 are allowed" in disk_excess(2 * MIB, f"{tmp_path}/home")


def test_a_folder_that_moves_while_it_is_measured_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "home" / "a" / "b"
    inner.mkdir(parents=True)
    written(inner / "c", 1)
    written(tmp_path / "home" / "other", 3)
    (tmp_path / "elsewhere").mkdir()
    listed = os.scandir

    def moving(place: Any) -> Any:
        found = listed(place)
        if inner.exists() and os.path.samestat(os.stat(place), os.stat(inner)):
            shutil.move(inner, tmp_path / "elsewhere" / "b")
        return found

    monkeypatch.setattr(os, "scandir", moving)
    assert DiskMeter().excess({1: (str(tmp_path / "home"),)}, 2 * MIB).keys() == {1}
    assert not inner.exists()
