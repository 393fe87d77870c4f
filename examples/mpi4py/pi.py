"""Pi with mpi4py: ``yod -sz 8 python pi.py`` (pip install mpich mpi4py)."""

from mpi4py import MPI

STEPS = 1_000_000

world = MPI.COMM_WORLD
step = 1.0 / STEPS
mine = step * sum(4.0 / (1.0 + ((i + 0.5) * step) ** 2) for i in range(world.rank, STEPS, world.size))
pi = world.reduce(mine, MPI.SUM, root=0)
if world.rank == 0:
    print(f"pi is {pi:.10f}, by {world.size} ranks", flush=True)
