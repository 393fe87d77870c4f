"""The simulated machine: a few processes that stand for thousands of PCTs (docs/simulation.md).

They use the real protocol with the RCA, launchers and each other, and start no ranks.
"""
