"""A file that another process writes, read in place: the same bytes as read(2) gives, and no death by a cut."""

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.pct.images import chunks
from agents.pct.images.chunks import MappedFile
from tests.support.chance import examples
from tests.support.forking import forks

PAGE = mmap.PAGESIZE
BYTES = os.urandom(5 * PAGE + 123)
#: No kernel knows that advice: it refuses it as one before 5.14 refuses to populate.
UNKNOWN = 0x7FFF


@pytest.fixture(params=["in place", "an older kernel"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "an older kernel":
        monkeypatch.setattr(chunks, "_POPULATE", UNKNOWN)
    return str(request.param)


@pytest.fixture
def file(tmp_path: Path, kernel: str) -> Iterator[tuple[Path, MappedFile]]:
    before = set(os.listdir("/proc/self/fd"))
    path = tmp_path / "image"
    path.write_bytes(BYTES)
    with contextlib.closing(MappedFile(os.open(path, os.O_RDONLY))) as handed:
        yield path, handed
    assert set(os.listdir("/proc/self/fd")) <= before, "no descriptor stays open"


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7 * PAGE), st.integers(1, 7 * PAGE)), max_size=6), st.booleans())
def test_any_piece_is_what_read_gives(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, int]], knows: bool
) -> None:
    path = tmp_path_factory.mktemp("lent") / "image"
    path.write_bytes(BYTES)
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(MappedFile(os.open(path, os.O_RDONLY))) as handed:
        if not knows:
            patch.setattr(chunks, "_POPULATE", UNKNOWN)
        for offset, count in asked:
            assert bytes(handed.piece(offset, count)) == BYTES[offset : offset + count]


def test_what_is_added_later_is_found(file: tuple[Path, MappedFile]) -> None:
    path, handed = file
    assert not handed.piece(len(BYTES), 1)
    with open(path, "ab") as more:
        more.write(BYTES)
    assert bytes(handed.piece(len(BYTES) - 2, 4)) == BYTES[-2:] + BYTES[:2]
    assert bytes(handed.piece(PAGE, 5 * PAGE)) == (BYTES + BYTES)[PAGE : 6 * PAGE]


def test_a_file_that_is_cut_short_gives_less_and_ends_nobody(tmp_path: Path, kernel: str) -> None:
    path, told = tmp_path / "image", tmp_path / "told"
    path.write_bytes(BYTES)

    def read_after_the_cut() -> None:
        with contextlib.closing(MappedFile(os.open(path, os.O_RDONLY))) as handed:
            bytes(handed.piece(0, len(BYTES)))
            os.truncate(path, PAGE)
            found = [len(bytes(handed.piece(2 * PAGE, PAGE))), bytes(handed.piece(0, PAGE)) == BYTES[:PAGE]]
            os.truncate(path, 0)
            told.write_text(f"{found} {len(bytes(handed.piece(0, PAGE)))}")

    with forks() as start:
        start(read_after_the_cut)  # fails when it dies
    assert told.read_text() == "[0, True] 0"


def test_one_that_nobody_may_read_is_an_error(tmp_path: Path, kernel: str) -> None:
    (tmp_path / "image").write_bytes(BYTES)
    with (
        contextlib.closing(MappedFile(os.open(tmp_path / "image", os.O_WRONLY))) as handed,
        pytest.raises(OSError),
    ):
        handed.piece(0, 10)


def test_one_that_cannot_be_mapped_is_read() -> None:
    path = Path("/sys/devices/system/cpu/online")  # as some network file systems: a size, and no mapping
    whole = path.read_bytes()
    with path.open("rb") as file, pytest.raises(OSError, match="No such device"):
        mmap.mmap(file.fileno(), path.stat().st_size, prot=mmap.PROT_READ)
    with contextlib.closing(MappedFile(os.open(path, os.O_RDONLY))) as handed:
        assert bytes(handed.piece(0, PAGE)) == whole


def test_a_piece_stays_good_behind_its_files_end(file: tuple[Path, MappedFile]) -> None:
    _, handed = file
    piece = handed.piece(0, PAGE)
    handed.close()
    handed.close()
    assert bytes(piece) == BYTES[:PAGE]
