"""``python -P -m redmesh job PATH``: the owner of the job whose state object is PATH; ``mesh submit`` starts it."""

import os
import signal
import sys
from typing import List, Optional

from agents.job.dependencies import Unmet, elsewhere, unmet
from agents.job.description import read
from agents.job.job_owner import JobOwner
from agents.job.start import wait_for
from agents.link.loop import Loop
from agents.linux import prctl
from agents.wire.errors import AgentError
from redmesh.resource_limits import limit_hint
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
        if job.meta("counts") is None:  # nothing was ever committed
            why = "mesh submit was killed before it had recorded the job: submit it again"
            job.finish(FAILED, why, exit_status=1, why=why)
            job.close()
            return 0
        # The keeper may inherit this process, and kills children that are no agents.
        prctl.set_name(b"redmesh-job")
        prctl.set_title(f"redmesh-job {job.uuid} {path}")
        status = _run(job)
    except StateError as error:
        print(f"job: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_status
    except (AgentError, OSError) as error:
        hint = limit_hint(error)
        print(f"job: {error}" + (f" ({hint})" if hint else ""), file=sys.stderr)
        return 1
    # The last of the other jobs may have ended while this process had the object: its owner has started a process for
    # this job, which found the object owned.
    return main(arguments) if status is None else status


def _run(job: StateObject) -> Optional[int]:
    """Returns the exit status; None if the job waited for others when this process opened it, and waits no more."""
    loop, directory = Loop(), os.path.dirname(job.path)
    try:
        # one that has begun has waited: the others may be on another host since, or purged
        after = [] if job.meta("begun_at") else read(job).after
        waits = unmet(directory, after)
    except Unmet as failed:
        owner = JobOwner(loop, job, loop.stop)
        owner.fail(failed.reason)
        return 0
    if waits:
        for other in waits:
            wait_for(directory, other, job.uuid)  # its end starts this job
        job.close()
        if elsewhere(directory, after):
            words = [*start_command("mesh"), "job", "follow", job.path]
            os.execv(words[0], words)
        try:
            return 0 if unmet(directory, after) else None
        except Unmet:
            return None
    owner = JobOwner(loop, job, loop.stop)
    owner.begin()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.on_signal(number, owner.suspend)
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
