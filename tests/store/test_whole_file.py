"""A file that a person asks for is written whole, or nothing has happened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.disks import no_file_over

from op_jupyter.store.whole_file import write_whole


@pytest.mark.parametrize("replace", [True, False])
def test_a_full_disk_leaves_nothing_of_a_new_file(tmp_path: Path, replace: bool) -> None:
    with no_file_over(10), pytest.raises(OSError, match="too large"):
        write_whole(tmp_path / "a.md", b"x" * 100_000, replace=replace)
    assert list(tmp_path.iterdir()) == []
    write_whole(tmp_path / "a.md", b"room again", replace=replace)
    assert (tmp_path / "a.md").read_bytes() == b"room again"


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("of yesterday")
    with no_file_over(10), pytest.raises(OSError, match="too large"):
        write_whole(tmp_path / "a.md", b"x" * 100_000)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.md", "of yesterday")]


def test_a_new_file_is_for_its_owner_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    write_whole(path, b"a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write_whole(path, b"b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_link_is_followed_and_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real.md")
    write_whole(tmp_path / "link", b"a")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real.md").read_bytes() == b"a"


def test_what_is_there_stays_when_it_is_not_to_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("mine")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "a.md", b"other", replace=False)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.md", "mine")]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(tmp_path / "pipe", b"through it")
        assert os.read(reader, 100) == b"through it"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
