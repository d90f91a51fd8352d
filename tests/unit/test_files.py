"""Is a file written whole or not at all, and is what is no ordinary file left in its place?"""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from heddle.errors import UserError
from heddle.files import write_whole, written_whole


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    write_whole(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), written_whole(tmp_path / "a") as file:
        file.write(b"new" + bytes(1 // len(b"")))
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old", encoding="utf-8")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_whole(tmp_path / "a", "new")
    assert [(p.name, p.read_text(encoding="utf-8")) for p in tmp_path.iterdir()] == [("a", "old")]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "new"


def test_a_result_has_the_permissions_of_an_ordinary_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "new")
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text(encoding="utf-8")))
    reader.start()
    write_whole(tmp_path / "pipe", "new")
    reader.join()
    assert (got, (tmp_path / "pipe").is_fifo()) == (["new"], True)


def test_an_error_of_the_system_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write '.*absent/a': No such file or directory"):
        write_whole(tmp_path / "absent" / "a", "new")
