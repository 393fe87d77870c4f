"""What nodes ask about mounted directories: nothing leads out of one, and a read-only one is not changed."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.pct.files.fuse import SET_HANDLE, SET_MODE
from agents.pct.files.remote_io import (  # fmt: skip
    ATTRIBUTES,
    CHANGES,
    CREATE_FILE,
    HANDLE,
    LINK,
    MAKE,
    OPEN_FILE,
    PLACE,
    READ_DIRECTORY,
    READ_FILE,
    RELEASE_FILE,
    REMOVE,
    RENAME,
    SET_ATTRIBUTES,
    STATUS,
)  # fmt: skip
from console.launch.transfer.file_system import FileSystem
from console.launch.transfer.sandbox import Roots

KEY, OTHER = (0, 1 << 31), (1, 1 << 31)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[FileSystem]:
    """``in`` (writable, 0) and ``also`` (read-only, 1) are served, ``out`` is not; links lead there."""
    for name in ("in/sub", "also", "out"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("in/a", "also/d", "out/secret"):
        (tmp_path / name).write_text(name)
    (tmp_path / "in" / "to-out").symlink_to(tmp_path / "out")
    (tmp_path / "in" / "to-secret").symlink_to("../out/secret")
    roots = Roots([(str(tmp_path / "in"), True), (str(tmp_path / "also"), False)])
    files = FileSystem(roots.roots)
    yield files
    files.close()
    roots.close()


def name(path: str, place: int = 0) -> memoryview:
    return memoryview(PLACE.pack(place) + path.encode())


@pytest.mark.parametrize(
    "path", ["..", "../out/secret", "sub/../../out/secret", "/etc/passwd", "sub/", "./a", "to-out/secret"]
)
def test_no_name_leads_out(served: FileSystem, path: str) -> None:
    for op in (ATTRIBUTES, OPEN_FILE, CREATE_FILE, READ_DIRECTORY, REMOVE, MAKE):
        with pytest.raises(OSError) as refused:
            served.serve(op, KEY, 0, 0o600, name(path))
        assert refused.value.errno in (errno.EINVAL, errno.ENOTDIR, errno.ELOOP), (op, path)
    for op in (RENAME, LINK):
        with pytest.raises(OSError):
            served.serve(op, KEY, 0, 0, memoryview(bytes(name("a")) + b"\0" + path.encode()))


def test_a_link_is_never_opened(served: FileSystem) -> None:
    with pytest.raises(OSError) as refused:
        served.serve(OPEN_FILE, KEY, os.O_RDONLY, 0, name("to-secret"))
    assert refused.value.errno == errno.ELOOP


def test_a_read_only_directory_is_not_changed(served: FileSystem) -> None:
    for op in (CREATE_FILE, REMOVE, MAKE):
        with pytest.raises(OSError) as refused:
            served.serve(op, KEY, os.O_WRONLY, 0o600, name("d", 1))
        assert refused.value.errno == errno.EROFS
    with pytest.raises(OSError) as refused:
        served.serve(OPEN_FILE, KEY, os.O_RDWR, 0, name("d", 1))
    assert refused.value.errno == errno.EROFS


def test_a_file_that_is_only_read_is_not_changed_by_the_name_of_another_directory(served: FileSystem) -> None:
    handle, _ = served.serve(OPEN_FILE, KEY, os.O_RDONLY, 0, name("d", 1))
    changes = CHANGES.pack(SET_HANDLE | SET_MODE, handle, 0o777, 0, 0, 0, 0, 0)
    with pytest.raises(OSError) as refused:
        served.serve(SET_ATTRIBUTES, KEY, 0, 0, memoryview(PLACE.pack(0) + changes))
    assert refused.value.errno == errno.EROFS


def test_a_handle_is_the_node_s_own(served: FileSystem) -> None:
    handle, told = served.serve(OPEN_FILE, KEY, os.O_RDONLY, 0, name("a"))
    assert told[STATUS.size :] == b"in/a"
    data = memoryview(HANDLE.pack(handle))
    assert served.serve(READ_FILE, KEY, 1, 2, data) == (2, b"n/")
    with pytest.raises(OSError) as refused:
        served.serve(READ_FILE, OTHER, 0, 4, data)
    assert refused.value.errno == errno.EBADF
    served.serve(RELEASE_FILE, OTHER, 0, 0, data)
    assert served.serve(READ_FILE, KEY, 0, 4, data)[1] == b"in/a"
