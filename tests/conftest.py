"""Fixtures that every test may use."""

from tests.support.mesh import mesh

__all__ = ["mesh"]
