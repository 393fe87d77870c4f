"""Names below the directories of --io: what realpath says is inside is opened, nothing else ever."""

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.errors import UsageError
from console.launch.options.request import TransferOptions
from console.launch.options.transfer import io_directory, stage_in, stage_out
from console.launch.options.transfer import read as read_options
from console.launch.transfer.sandbox import OutsideSandbox, Roots


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[tuple[Path, Roots]]:
    """in/ and also/ may be opened, out/ not; links everywhere."""
    for name in ("in/sub/deep", "also", "out"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("in/a", "in/sub/b", "in/sub/deep/c", "also/d", "out/secret"):
        (tmp_path / name).write_text(name)
    for link, target in (
        ("in/to-a", "a"), ("in/to-sub", "sub"), ("in/sub/up", "../a"), ("in/out", "../out"),
        ("in/abs", tmp_path / "in/a"),
        ("in/also", tmp_path / "also"), ("in/secret", tmp_path / "out/secret"), ("in/loop", "loop"),
        ("in/sub/far", "../../out/secret"), ("in/back", "sub/../sub/deep/../../a"), ("in/dangling", "nothing"),
        ("out/in", "../in"), ("in/through", "../out/in/a"),
    ):  # fmt: skip
        (tmp_path / link).symlink_to(target)
    roots = Roots([(str(tmp_path / "in"), True), (str(tmp_path / "also"), False)])
    yield tmp_path, roots
    roots.close()


def read(roots: Roots, name: str) -> str:
    fd = roots.open(os.fsencode(name), os.O_RDONLY)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a", "in/a"), ("./sub//b", "in/sub/b"), ("sub/deep/../b", "in/sub/b"), ("to-a", "in/a"),
        ("to-sub/b", "in/sub/b"),
        ("sub/up", "in/a"), ("abs", "in/a"), ("also/d", "also/d"), ("back", "in/a"), ("to-sub/deep/c", "in/sub/deep/c"),
    ],
)  # fmt: skip
def test_what_is_inside_is_found(tree: tuple[Path, Roots], name: str, text: str) -> None:
    assert read(tree[1], name) == text
    assert read(tree[1], str(tree[0] / "in" / name)) == text


@pytest.mark.parametrize(
    "name",
    ["..", "../out/secret", "sub/../../out/secret", "out/secret", "secret", "sub/far", "through", "/etc/passwd",
     "to-sub/../../out/secret", "/", "also/../out/secret"],
)  # fmt: skip
def test_what_leads_out_is_refused(tree: tuple[Path, Roots], name: str) -> None:
    with pytest.raises(OutsideSandbox):
        read(tree[1], name)
    with pytest.raises(OSError):
        tree[1].open(os.fsencode(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert (tree[0] / "out/secret").read_text() == "out/secret"


def test_a_name_that_only_begins_like_a_directory(tree: tuple[Path, Roots]) -> None:
    (tree[0] / "inside").mkdir()
    (tree[0] / "inside" / "x").write_text("x")
    with pytest.raises(OutsideSandbox):
        read(tree[1], str(tree[0] / "inside" / "x"))


@pytest.mark.parametrize(
    ("name", "code"),
    [("none", errno.ENOENT), ("dangling", errno.ENOENT), ("loop", errno.ELOOP), ("a/b", errno.ENOTDIR)],
)
def test_errors_are_the_kernels(tree: tuple[Path, Roots], name: str, code: int) -> None:
    with pytest.raises(OSError) as caught:
        read(tree[1], name)
    assert caught.value.errno == code


@pytest.mark.parametrize("name", ["sub/", "./", "sub/.", "sub//"])
def test_a_slash_at_the_end_is_a_directory(tree: tuple[Path, Roots], name: str) -> None:
    os.close(tree[1].open(os.fsencode(name), os.O_RDONLY))
    with pytest.raises(NotADirectoryError):
        read(tree[1], "a/")
    with pytest.raises(IsADirectoryError):
        tree[1].open(b"new/", os.O_WRONLY | os.O_CREAT)


def test_writing_where_it_is_allowed(tree: tuple[Path, Roots]) -> None:
    fd = tree[1].open(b"sub/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, b"x")
    os.close(fd)
    assert (tree[0] / "in/sub/new").read_text() == "x"
    for name in (str(tree[0] / "also/new"), "also/new", "also/d"):  # also by a link from the writable one
        with pytest.raises(OSError) as caught:
            tree[1].open(os.fsencode(name), os.O_WRONLY | os.O_CREAT)
        assert caught.value.errno == errno.EROFS
    # a dangling link that leads out makes no file there
    (tree[0] / "in/trap").symlink_to(tree[0] / "out/made")
    with pytest.raises(OutsideSandbox):
        tree[1].open(b"trap", os.O_WRONLY | os.O_CREAT)
    assert not (tree[0] / "out/made").exists()


def test_a_fifo_does_not_stop_yod(tree: tuple[Path, Roots]) -> None:
    os.mkfifo(tree[0] / "in/fifo")
    os.close(tree[1].open(b"fifo", os.O_RDONLY))


def test_random_walks_agree_with_realpath(tree: tuple[Path, Roots]) -> None:
    """Whatever the name: it is opened only if realpath is inside, and then it is that very file."""
    base, roots = tree
    chosen = random.Random(7)
    inside = [str(base / "in"), str(base / "also")]
    opened = 0
    parts = [
        "..",
        ".",
        "a",
        "sub",
        "deep",
        "b",
        "c",
        "to-sub",
        "up",
        "out",
        "abs",
        "also",
        "d",
        "back",
        "through",
        "secret",
        "in",
    ]
    for _ in range(4000):
        name = "/".join(chosen.choices(parts, k=chosen.randint(1, 6)))
        real = os.path.realpath(base / "in" / name)
        try:
            fd = roots.open(name.encode(), os.O_RDONLY)
        except OSError:
            continue
        opened += 1
        try:
            assert any(real == root or real.startswith(root + "/") for root in inside), name
            assert os.path.samestat(os.fstat(fd), os.stat(real)), name
        finally:
            os.close(fd)
    assert opened > 100


def test_no_directories_no_files() -> None:
    with pytest.raises(OutsideSandbox):
        Roots([]).open(b"a", os.O_RDONLY)


def test_the_options_words(tmp_path: Path) -> None:
    assert io_directory("/a/b:ro") == ("/a/b", False) and io_directory("/a/b") == ("/a/b", True)
    options = TransferOptions()
    read_options({"io": [str(tmp_path)], "bcast-per": "node"}, options)
    assert options.bcast_share is False
    with pytest.raises(UsageError, match="no such directory"):
        read_options({"io": [str(tmp_path / "none")]}, TransferOptions())
    source, target = stage_in("in-{rank:04}:out-{rank}")
    assert source.fill(3, "n1", 7, 0) == "in-0003" and target is not None and target.fill(3, "n1", 7, 0) == "out-3"
    assert stage_in("data")[1] is None
    assert stage_out("{node}-{local}:{node}-{local}")[1].one_each
    for wrong in ("out", "out-{rank}:all", "a:{what}"):
        with pytest.raises(UsageError):
            read_options({"stage-out": [wrong]}, TransferOptions())
