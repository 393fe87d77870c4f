"""The socket by which pdb comes into a program: connections that come faster than they are refused."""

import subprocess
import sys

from tests.support.waiting import PATIENCE_S

#: A program whose listening socket signals it again during each accept, as more connections do.
KNOCKED_AT = """
import signal
from agents.yodio import yodpdb

yodpdb.debug_on_request()
way = yodpdb._ways[0]
listening, knocks = way.sock, 0

class Knocked:
    def accept(self):
        global knocks
        knocks += 1
        if knocks < 3000:
            signal.raise_signal(signal.SIGIO)
        return listening.accept()

way.sock = Knocked()
signal.raise_signal(signal.SIGIO)
print(knocks)
"""


def test_a_thousand_connections_at_once_do_not_end_the_program() -> None:
    done = subprocess.run([sys.executable, "-c", KNOCKED_AT], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.returncode) == ("3000\n", 0), done.stderr[-2000:]
