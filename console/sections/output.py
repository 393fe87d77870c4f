"""The outputs of a job of sections: what is combined from which parts, and how."""

from __future__ import annotations

from dataclasses import dataclass

#: ``header``: the first part's header once, then every part without its header.
HOW = ("concatenate", "sum", "mean", "header")


@dataclass(frozen=True)
class Output:
    """An output of a job. ``part``: template for the file names of the sections' parts.

    ``dtype``, ``shape``: of the arrays that ``sum`` and ``mean`` add, in numpy's terms. ``result_dtype``: of the array
    in the output ("": the type that numpy's ``sum`` and ``mean`` return). ``header``: how many bytes at the beginning
    of each part are a header; ``header``, ``sum`` and ``mean`` copy it from the first part only.
    """

    name: str
    part: str
    how: str = "concatenate"
    command: tuple[str, ...] = ()
    dtype: str = ""
    shape: tuple[int, ...] = ()
    header: int = 0
    result_dtype: str = ""
