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


#: A listening socket whose connections never end, each of which its peer closes at once.
FLOODED = """
import signal, socket, time
from agents.yodio import yodpdb

yodpdb.debug_on_request()
accepted = 0

class Endless:
    def accept(self):
        global accepted
        accepted += 1
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours, None

yodpdb._ways[0].sock = Endless()
signal.raise_signal(signal.SIGIO)
first = accepted
while accepted == first:
    time.sleep(0.01)
print(first)
"""


def test_connections_without_end_do_not_stop_the_program() -> None:
    """It goes on between them, and those that are left are accepted without another signal."""
    done = subprocess.run([sys.executable, "-c", FLOODED], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.returncode) == ("64\n", 0), done.stderr[-2000:]
