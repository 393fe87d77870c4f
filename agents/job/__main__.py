"""``python -P -m redmesh job PATH``: the owner of the job whose state object is PATH; ``mesh submit`` starts it."""

import os
import signal
import sys
from typing import List

from agents.job.dependencies import Unmet, elsewhere, unmet
from agents.job.description import read
from agents.job.job_owner import JobOwner
from agents.link.loop import Loop
from agents.linux.prctl import set_title
from agents.wire.errors import AgentError
from redmesh.start_command import start_command
from redmesh.state import CANCELLED, DONE, FAILED, StateError, StateObject, owned


def main(arguments: List[str]) -> int:
    """Run the job to its end; returns the exit status."""
    if len(arguments) != 1:
        print("usage: python -P -m redmesh job PATH", file=sys.stderr)
        return 2
    path = arguments[0]
    if owned(path):
        return 0  # another owner is running
    try:
        job = StateObject(path)
        if job.meta("state") in (DONE, FAILED, CANCELLED):
            job.close()
            return 0
        set_title(f"redmesh-job {job.uuid} {path}")
        return _run(job)
    except StateError as error:
        print(f"job: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_status
    except (AgentError, OSError) as error:
        print(f"job: {error}", file=sys.stderr)
        return 1


def _run(job: StateObject) -> int:
    loop = Loop()
    try:
        # one that has begun has waited: the others may be on another host since, or purged
        after = [] if job.meta("begun_at") else read(job).after
        waits = unmet(os.path.dirname(job.path), after)
    except Unmet as failed:
        owner = JobOwner(loop, job, loop.stop)
        owner.fail(failed.reason)
        return 0
    if waits:
        job.close()  # the end of the other job starts this one
        if elsewhere(os.path.dirname(job.path), after):
            words = [*start_command("mesh"), "job", "follow", job.path]
            os.execv(words[0], words)
        return 0
    owner = JobOwner(loop, job, loop.stop)
    owner.begin()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, owner.suspend)
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
