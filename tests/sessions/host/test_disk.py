"""The disk space that confined servers take in their own folders."""

from pathlib import Path

from sessions.host.disk import DiskMeter

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
    assert over[1] >= 6 * MIB
    assert list(meter.excess(folders, 5 * MIB)) == [1]  # the disk is not fuller, but it was over
    (tmp_path / "home" / "file").unlink()
    assert meter.excess(folders, 5 * MIB) == {}


def test_links_are_not_followed_and_folders_that_are_gone_do_no_harm(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere", 8)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "elsewhere")
    assert DiskMeter().excess({1: (str(tmp_path / "home"),), 2: (str(tmp_path / "gone"),)}, MIB) == {}
