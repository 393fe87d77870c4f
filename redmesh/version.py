"""Which Redmesh this is. The one place: the package's metadata is made from it (pyproject.toml)."""

VERSION = "0.2.0"
