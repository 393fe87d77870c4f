"""The simulated machine: stand-ins for thousands of PCTs in a few processes (docs/simulation.md).

They speak the real protocol towards RCA, launchers and each other, and start nothing.
"""
