"""Redmesh from Python: ``redmesh.run(["./heat"], size=16).text`` (docs/python.md).

Importing the package loads nothing else: every layer, agents included, imports modules of this package.
Type checkers read ``__init__.pyi``.
"""

#: The public names, by the module that defines them (PEP 562).
_DEFINED_IN = {
    "redmesh.executor": ("Executor",),
    "redmesh.errors": ("LaunchFailed", "NotLaunched", "RedmeshError"),
    "redmesh.events": (
        "Aborted",
        "Allocated",
        "BadExit",
        "End",
        "Event",
        "Exit",
        "Lost",
        "OutOfMemory",
        "Output",
        "Result",
        "SameEnd",
        "Started",
    ),
    "redmesh.placement": ("Geometry", "Layout", "Placement", "PlacementError"),
    "redmesh.api": ("PIPE", "Launch", "attach", "launch", "run", "stacks"),
}
#: Public names that are defined in files of agents/yodio. Ranks get these files without the package.
_IN_FILES = {"debug_here": "yodpdb", "debug_on_request": "yodpdb", "job": "yodstate"}
_MODULE_OF = {name: module for module, names in _DEFINED_IN.items() for name in names}
__all__ = [*_MODULE_OF, *_IN_FILES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__version__":
        from redmesh.version import VERSION

        return VERSION
    if name in _IN_FILES:
        module = _file(_IN_FILES[name])
    elif name in _MODULE_OF:
        from importlib import import_module

        module = import_module(_MODULE_OF[name])
    else:
        raise AttributeError("module 'redmesh' has no attribute %r" % name)
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def _file(file: str) -> object:
    # Load the file by its path: the program may import another distribution's "agents" under that name.
    import sys
    from importlib.util import module_from_spec, spec_from_file_location

    from redmesh.start_command import ROOMS

    name = "redmesh._" + file
    if name not in sys.modules:
        spec = spec_from_file_location(name, "%s/agents/yodio/%s.py" % (ROOMS, file))
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
