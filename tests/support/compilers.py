"""Compilers that tests drive where the machine has them."""

import functools
import shutil
import subprocess


@functools.cache
def has_rustc() -> bool:
    """Return whether Rust programs can be compiled: rustup's rustc needs a toolchain in HOME."""
    rustc = shutil.which("rustc")
    return rustc is not None and subprocess.run([rustc, "--version"], capture_output=True).returncode == 0
