"""Several processes after the last processors, each with a connection and a picture of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from db.store.store import Store
from tests.support.stores import define
from tests.support.waiting import PATIENCE_S

TAKERS = 4
ROOT = Path(__file__).parents[3]

#: One competitor: asks for processors until none are left; gives some back on its way when told to.
TAKER = """
import json, sys
sys.path.insert(0, {root!r})
from db.store.store import open_store
from db.errors import NotEnough
from db.allocation.free import Machine
from tests.support.stores import give_back, take
url, number, churn = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store, machine, held, refused = open_store(url), Machine(), [], []
store.read("SELECT 1")
print("ready", flush=True)
sys.stdin.readline()
for turn in range(churn):
    try:
        held.append(take(store, machine, 1 + (turn + number) % 5))
    except NotEnough as error:
        refused.append(error.free)
    if turn % 3 == 2 and held:
        give_back(store, held.pop(0), machine=machine)
while True:
    try:
        held.append(take(store, machine, 1))
    except NotEnough as error:
        refused.append(error.free)
        break
print(json.dumps([[one.launcher, one.processors] for one in held]), json.dumps(refused[-1]), sep="\\n")
store.close()
"""


@pytest.mark.parametrize("churn", [0, 60])
def test_the_last_processors(database_url: str, store: Store, churn: int) -> None:
    define(store, nodes=8, slots=8)
    code = TAKER.format(root=str(ROOT))
    takers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", code, database_url, str(number), str(churn)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for number in range(TAKERS)
    ]
    try:
        for taker in takers:
            assert taker.stdout is not None and taker.stdout.readline() == "ready\n"
        outputs = []
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("go\n")
            taker.stdin.flush()
        outputs = [taker.communicate(timeout=PATIENCE_S)[0].splitlines() for taker in takers]
    finally:
        for taker in takers:
            taker.kill()
            taker.wait()
    held = [one for lines in outputs for one in json.loads(lines[0])]
    assert sorted(one for _, processors in held for one in processors) == list(range(64)), "none twice, none lost"
    assert [json.loads(lines[1]) for lines in outputs] == [0] * TAKERS, "refused with how many were free"
    assert len({launcher for launcher, _ in held}) == len(held)
    rows = store.read("SELECT id, launcher FROM processor")
    assert {row[0]: row[1] for row in rows} == {one: launcher for launcher, ids in held for one in ids}
    counter, changes = store.read("SELECT counter, (SELECT MAX(changed) FROM launcher) FROM mesh")[0]
    assert counter == changes
