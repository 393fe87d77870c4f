"""Deliberately wrong, as deadlock.c: rank 1 waits for news, the others for rank 1. It never ends."""

from mpi4py import MPI

world = MPI.COMM_WORLD


def ask():
    return world.recv(source=0, tag=42)


def meet():
    world.Barrier()


if world.rank == 1:
    ask()
else:
    meet()
