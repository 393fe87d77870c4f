"""``make bench``: every figure an issue names, or the sections named on the command line."""

import sys

from tests.bench import (
    allocating,
    attacked,
    beating,
    console_keys,
    console_output,
    console_rest,
    consoles,
    deploying,
    far_hosts,
    far_launching,
    giving_back,
    graphs,
    imaging,
    inspecting,
    launching,
    managers,
    mounted,
    objects,
    outage,
    parallel,
    placing,
    scaling,
    sections,
    streaming,
    tasks,
    waiting,
)
from tests.bench.ratios import show

SECTIONS = {
    "launches": launching.launches,
    "thousand": launching.thousand,
    "start_up": launching.start_up,
    "memory": launching.memory,
    "allocation": allocating.allocation,
    "requests": waiting.requests,
    "outage": outage.outage,
    "placing": placing.placing,
    "mpi": parallel.mpi,
    "fence": parallel.fence,
    "stacks": inspecting.stacks,
    "hold": inspecting.hold,
    "output": streaming.output,
    "in_sequence": streaming.in_sequence,
    "viewing": scaling.viewing,
    "whole_machine": scaling.whole_machine,
    "four_cpas": scaling.four_cpas,
    "replay": scaling.replay,
    "broadcast": imaging.broadcast,
    "files": imaging.files,
    "mounted": mounted.mounted,
    "console_map": consoles.console_map,
    "console_output": console_output.console_output,
    "console_keys": console_keys.console_keys,
    "console_start": console_rest.console_start,
    "console_rest": console_rest.console_rest,
    "beats": beating.beats,
    "up_hosts": deploying.up_hosts,
    "ssh_routes": deploying.ssh_routes,
    "hosts": far_launching.hosts,
    "far_image": far_hosts.far_image,
    "idle_pct": far_hosts.idle_pct,
    "managers": managers.managers,
    "tasks": tasks.tasks,
    "graph": graphs.graphs,
    "giving_back": giving_back.giving_back,
    "functions": tasks.functions,
    "sections": sections.sections,
    "objects": objects.status,
    "object_move": objects.move,
    "attacked": attacked.attacked,
}


def main() -> int:
    """Print the table; status 1 when a bar is missed."""
    rows = []
    for name in sys.argv[1:] or SECTIONS:
        print(f"{name} …", file=sys.stderr)
        rows += SECTIONS[name]()
    print(show(rows))
    return int(any(row.ratio is not None and row.bar.verdict(row.ratio) == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
