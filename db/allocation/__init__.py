"""Allocation of processors: placement input, reservations, the waiting queue, release."""
