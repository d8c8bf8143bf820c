import stat

import pytest

from ratecli.errors import FaultError
from ratecli.files import atomic_write, atomic_write_all


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_text_and_bytes_are_written_unchanged_with_usual_permissions(tmp_path):
    path = tmp_path / "summary.md"
    atomic_write(path, "caf\u00e9\n\r\n")
    assert path.read_bytes() == b"caf\xc3\xa9\n\r\n"
    atomic_write(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert names(tmp_path) == ["summary.md"]
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "figures"
    path.mkdir()
    (path / "old.svg").touch()
    with pytest.raises(FaultError, match=r"E505: cannot write to '.*figures': "):
        atomic_write(path, "cannot replace a folder")
    assert names(tmp_path) == ["figures"]
    assert names(path) == ["old.svg"]


def test_several_files_are_written_all_or_none(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    atomic_write_all({one: "a", two: b"b"})
    assert (one.read_text(), two.read_text()) == ("a", "b")
    assert sorted(names(tmp_path)) == ["one", "two"]
    (tmp_path / "three").mkdir()
    for last in (tmp_path / "three", tmp_path / "absent" / "four"):
        with pytest.raises(FaultError, match=f"E505: cannot write to '{last}': "):
            atomic_write_all({one: "changed", two: "changed", last: "c"})
        assert (one.read_text(), two.read_text()) == ("a", "b")
        assert sorted(names(tmp_path)) == ["one", "three", "two"]
