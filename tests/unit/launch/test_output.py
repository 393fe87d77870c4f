"""Output: whole labelled lines, sinks that never block or lose a byte, the sanitiser, the completion table."""

import os
import random
import select
import socket
import threading
import unicodedata
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agents.link.loop import Loop
from console.launch.events.completion_report import completion_rows
from console.launch.ranks import Ranks
from console.launch.stdio.label import LONGEST, MOST, Labeller
from console.launch.stdio.sink import Sink
from redmesh.idset import fold_names, fold_ranks
from redmesh.sanitise import clean
from tests.support.waiting import PATIENCE_S
from tests.unit.launch.test_states import plan_of

OUT, ERR = 2, 3


def test_a_line_in_pieces_is_one_line() -> None:
    labeller = Labeller(12)
    assert labeller.feed(OUT, 3, b"ab") == b""
    assert labeller.feed(OUT, 11, b"x\ny") == b"11: x\n"
    assert labeller.feed(ERR, 3, b"err\n") == b" 3: err\n"
    assert labeller.feed(OUT, 3, b"c\n\nd") == b" 3: abc\n 3: \n"
    assert labeller.end() == [(OUT, 3, b" 3: d\n"), (OUT, 11, b"11: y\n")]
    assert labeller.end() == []


def test_a_line_that_does_not_end_is_broken() -> None:
    labeller = Labeller(1)
    out = labeller.feed(OUT, 0, b"x" * (LONGEST + 10))
    assert out == b"0: " + b"x" * LONGEST + b"\n"
    assert labeller.end() == [(OUT, 0, b"0: " + b"x" * 10 + b"\n")]


def test_what_is_held_is_bounded() -> None:
    labeller = Labeller(1000)
    held = 0
    for rank in range(1000):
        held += len(labeller.feed(OUT, rank, b"y" * 60_000))
        held += sum(len(line) for _, _, line in labeller.relieve())
    assert held >= 1000 * 60_000 - MOST


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([OUT, ERR]), st.binary(max_size=12)), max_size=30))
def test_labels_lose_and_mix_nothing(writes: list[tuple[int, int, bytes]]) -> None:
    labeller = Labeller(3)
    got: dict[tuple[int, int], bytes] = {}
    written: dict[tuple[int, int], bytes] = {}
    pieces = []
    for rank, kind, data in writes:
        written[kind, rank] = written.get((kind, rank), b"") + data
        pieces.append((kind, labeller.feed(kind, rank, data)))
    for kind, text in [*pieces, *((kind, line) for kind, _, line in labeller.end())]:
        assert not text or text.endswith(b"\n")
        for line in text.split(b"\n")[:-1]:
            rank, _, rest = line.partition(b": ")
            got[kind, int(rank)] = got.get((kind, int(rank)), b"") + rest + b"\n"
    for key, data in written.items():
        whole = data if not data or data.endswith(b"\n") else data + b"\n"
        assert got.get(key, b"") == whole


class Watch:
    def __init__(self, fd: int) -> None:
        self.loop, self.passed, self.broken = Loop(), 0, []  # type: ignore[var-annotated]
        self.sink = Sink(self.loop, fd, self._pass, self.broken.append)

    def _pass(self, amount: int) -> None:
        self.passed += amount


def test_a_pipe_gets_every_byte_and_its_flags_are_left_alone() -> None:
    reader, writer = os.pipe()
    watch = Watch(writer)
    assert os.get_blocking(writer), "the shell has this description too"
    dice = random.Random(4)
    pieces = [dice.randbytes(dice.choice((1, 10, 5000, 200_000))) for _ in range(200)]
    got = bytearray()

    def read() -> None:
        while piece := os.read(reader, 1 << 16):
            got.extend(piece)

    for piece in pieces:
        watch.sink.push(piece, len(piece))  # nobody reads yet: never blocks
    assert watch.sink.waiting
    thread = threading.Thread(target=read)
    thread.start()
    while watch.sink.waiting:
        watch.loop.run_once(1)
    watch.sink.close()
    os.close(writer)
    thread.join(PATIENCE_S)
    assert bytes(got) == b"".join(pieces)
    assert watch.passed == sum(map(len, pieces))


def test_credit_comes_back_only_for_what_was_taken() -> None:
    reader, writer = os.pipe()
    watch = Watch(writer)
    for _ in range(40):
        watch.sink.push(b"z" * 10_000, 10_000)
    assert watch.passed <= 65536 < 400_000
    assert watch.passed + watch.sink.waiting >= 400_000 - 65536
    assert select.select([reader], [], [], 0)[0]


def test_small_writes_cost_bytes_and_not_objects() -> None:
    _reader, writer = os.pipe()
    watch = Watch(writer)
    for _ in range(300_000):
        watch.sink.push(b"1\n", 2)
    assert len(watch.sink._pieces) < 20


def test_a_reader_that_goes() -> None:
    reader, writer = os.pipe()
    watch = Watch(writer)
    watch.sink.push(b"z" * 100_000, 100_000)
    os.close(reader)
    while not watch.broken:
        watch.loop.run_once(1)
    assert isinstance(watch.broken[0], BrokenPipeError)
    assert watch.sink.waiting == 0
    watch.sink.push(b"more", 4)
    assert watch.passed == 100_004


def test_a_socket_is_written_without_blocking_it_for_others() -> None:
    ours, theirs = socket.socketpair()
    watch = Watch(ours.fileno())
    for _ in range(100):
        watch.sink.push(b"s" * 50_000, 50_000)
    assert 0 < watch.passed < 5_000_000 and watch.sink.waiting
    assert os.get_blocking(ours.fileno())
    got = 0
    while got < 5_000_000:
        watch.loop.run_once(0)
        try:
            got += len(theirs.recv(1 << 20, socket.MSG_DONTWAIT))
        except BlockingIOError:
            watch.loop.run_once(0.1)
    assert (watch.passed, watch.sink.waiting) == (5_000_000, 0)
    theirs.close()
    watch.sink.push(b"x", 1)
    assert isinstance(watch.broken[0], BrokenPipeError)


def test_a_file_and_dev_null(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file:
        watch = Watch(file.fileno())
        watch.sink.push(b"x" * 1_000_000, 1_000_000)
        assert (watch.passed, watch.sink.waiting) == (1_000_000, 0)
    assert (tmp_path / "out").stat().st_size == 1_000_000
    with open("/dev/null", "wb") as null:
        watch = Watch(null.fileno())
        watch.sink.push(b"x" * 1_000_000, 1_000_000)
        assert (watch.passed, watch.sink.waiting) == (1_000_000, 0)
    with open("/dev/full", "wb", buffering=0) as full:
        watch = Watch(full.fileno())
        watch.sink.push(b"x", 1)
        assert watch.broken[0].errno == 28


def test_the_sanitiser_shows_control_characters_as_symbols() -> None:
    assert clean("plain text, größer") == "plain text, größer"
    assert clean("\x1b[31mred\x07\x7f") == "␛[31mred␇␡"
    assert clean("a\tb\nc") == "a␉b␊c"
    assert clean("a\tb\nc", keep="\n\t") == "a\tb\nc"
    payloads = [
        "\x1b]52;c;aGk=\x07",
        "\x9b2J",
        "\x90q\x9c",
        "\x1b[6n",
        "\x1b]8;;http://x\x1b\\",
        "\x1bP",
        "\x85",
        "\u202e\u2066",
    ]
    for payload in payloads:
        shown = clean(payload)
        assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0x202A <= ord(char) <= 0x202E for char in shown)
        assert len(shown) == len(payload)


OVERRIDES = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text())
def test_nothing_passes_the_sanitiser(text: str) -> None:
    shown = clean(text)
    assert len(shown) == len(text)
    assert clean(shown) == shown
    shown.encode("utf-8")
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(char) for char in shown} & OVERRIDES
    assert not set(shown) & {"\n", "\r", "\x1b", "\x9b", "\u2028", "\u2029", "\u200b", "\u202e"}


def test_ranks_and_node_names_are_folded() -> None:
    assert fold_ranks([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert fold_names(["n0", "n1", "n2", "login1", "n9", "n10"]) == "n0-n2,login1,n9-n10"
    assert fold_names(["a", "b"]) == "a,b"
    assert fold_names([]) == ""


def test_the_completion_table_folds_what_is_alike() -> None:
    ranks = Ranks()
    ranks.planned(plan_of(8, 4))
    for rank in range(4):
        ranks.ended(rank, 0, 1.21 + rank / 1000, killed=False)
    ranks.ended(4, 3 << 8, 0.5, killed=False)
    ranks.ended(5, 11, 0.04, killed=False)
    ranks.ended(6, 15, 2.0, killed=True)
    ranks.lost([7])
    assert completion_rows(ranks) == [
        "rank 0-3 on n0-n1: exit 0, 1.2 s",
        "rank 4 on n2: exit 3, 0.5 s",
        "rank 5 on n2: SIGSEGV (Segmentation fault), 0.0 s",
        "rank 6 on n3: SIGTERM (Terminated) from yod, 2.0 s",
        "rank 7 on n3: lost with its node",
    ]


def test_a_long_row_is_cut_and_counted() -> None:
    ranks = Ranks()
    ranks.planned(plan_of(200, 100))
    for rank in range(200):
        ranks.ended(rank, rank % 2 << 8, 1.0, killed=False)
    short, _ = completion_rows(ranks)
    assert short.startswith("rank 0,2,4,6,") and ",… (100 ranks) on n0-n99: exit 0, 1.0 s" in short
    assert len(short) < 120
    assert ",196,198 on n0-n99" in completion_rows(ranks, whole=True)[0]


def test_a_loss_of_no_node_names_none() -> None:
    assert Ranks().lost_line([], "n0 (the launch's root): the connection ended").startswith("lost: n0")
