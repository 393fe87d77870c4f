"""The version of Redmesh, defined only here. pyproject.toml makes the package's metadata from it."""

VERSION = "0.2.0"
