"""Which CPA a login processor without one asks first."""

from pathlib import Path

from agents.rca.logins.routes import FIRST_PAUSE_S, LONGEST_PAUSE_S, Routes

GRANTED = ["tls://10.0.0.1:7118/cpa/login1", "tls://10.0.0.1:7119/cpa/login1"]
LOGINS = [
    ("login1", "udp://10.0.0.1:7117", "up"), ("login2", "udp://10.0.0.2:7117", "up"),
    ("login3", "udp://10.0.0.3:7117", "down"), ("login4", "udp://[fd00::4]:7117", "up"),
]  # fmt: skip
FOURTH, THIRD = "tls://[fd00::4]:7118/cpa/login4", "tls://10.0.0.3:7118/cpa/login3"


def make(run: Path, port: int = 7118) -> Routes:
    return Routes(GRANTED, "login2", port, str(run))


def test_those_it_was_granted_then_those_of_others_and_never_its_own(tmp_path: Path) -> None:
    ways = make(tmp_path)
    assert ways.order(0, 0.0) == GRANTED
    ways.learn(LOGINS)
    assert ways.order(0, 0.0) == [*GRANTED, FOURTH, THIRD]
    assert ways.order(1, 0.0) == [*GRANTED[::-1], FOURTH, THIRD]


def test_one_that_is_no_more_is_forgotten_and_an_rca_that_begins_anew_knows_them(tmp_path: Path) -> None:
    make(tmp_path).learn(LOGINS)
    again = make(tmp_path)
    assert again.order(0, 0.0) == [*GRANTED, FOURTH, THIRD]
    again.learn(LOGINS[:2])
    assert make(tmp_path).order(0, 0.0) == GRANTED


def test_nobody_is_learned_of_where_no_port_is_known(tmp_path: Path) -> None:
    ways = make(tmp_path, 0)
    ways.learn(LOGINS)
    assert ways.order(0, 0.0) == GRANTED


def test_what_was_damaged_is_no_address(tmp_path: Path) -> None:
    (tmp_path / "cpas-afar").write_text("tls://10.0.0.4/cpa\n")
    assert make(tmp_path).order(0, 0.0) == GRANTED


def test_one_that_failed_is_last_for_a_while_that_doubles(tmp_path: Path) -> None:
    ways, now = make(tmp_path), 0.0
    first, second = GRANTED
    pauses = []
    for _ in range(7):
        ways.failed(first, now)
        ways.failed(first, now)  # by another client at the same moment: the same failure
        assert ways.order(0, now) == [second, first]
        begun = now
        while ways.order(0, now)[0] != first:
            now += 0.5
        pauses.append(now - begun)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S] and pauses[-1] == LONGEST_PAUSE_S
    ways.failed(first, now)
    ways.works(first)
    assert ways.order(0, now) == GRANTED
