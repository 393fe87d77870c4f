"""Dask workers on the processors of a mesh: a scheduler here, a worker on every rank (pip install distributed)."""

import sys

from distributed import Client, LocalCluster

import redmesh

if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    with LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--no-dashboard"]
        with redmesh.launch([*worker, "--nthreads", "1", "--no-nanny"], size=size), Client(cluster) as client:
            client.wait_for_workers(size, timeout=60)
            print(sum(client.gather(client.map(lambda x: x * x, range(100)))))
