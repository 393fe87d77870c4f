"""Adds up the arrays in parts of sections, element by element: the outputs ``sum`` and ``mean``. Needs numpy.

The types are those of numpy's ``sum`` and ``mean``: integers are added in 64 bits, and the mean of integers is a
``float64``. Unlike numpy, a value that the result's type cannot hold is an error. Arrays are added in the order of
the sections, so every run gives the same bytes; floats are added in double precision.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from console.errors import ConsoleError
from console.sections.output import Output

_PIECE = 1 << 24  # bytes in memory at once
#: Kinds of numpy's types; a value of one goes only into a type of the same or a later number.
_ORDER = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_NPY = b"\x93NUMPY"
_TYPES = '"float32", "<f8", "int64" …'


class _Types(NamedTuple):
    """numpy's types of the arrays in the parts, of their sum while it grows, and of the array in the output."""

    part: Any
    wide: Any
    result: Any


def add_up(output: Output, path: str, parts: Sequence[str]) -> None:
    """Write the sum or the mean of the arrays in ``parts`` to ``path``. Raises ConsoleError or OSError."""
    numpy = _numpy()
    types = _types(numpy, output)
    end = _end_of_arrays(numpy, output, types.part, parts)
    item = types.part.itemsize
    step = max(1, _PIECE // max(item, 16)) * item
    with open(path, "wb") as whole:
        whole.write(_header(numpy, output, types, parts[0]))
        for at in range(output.header, end, step):
            total = _total(numpy, output, types, parts, at, min(step, end - at))
            if output.how == "mean":
                total = total / len(parts)
            whole.write(_converted(numpy, output, total, types.result).tobytes())


def _header(numpy: Any, output: Output, types: _Types, part: str) -> bytes:
    """The output's header: that of the first part. The header of a ``.npy`` file gets the type of the output."""
    with open(part, "rb") as first:
        header = first.read(output.header)
    if types.result == types.part or not header:
        return header
    if header.startswith(_NPY):
        try:
            return _npy_header(numpy, header, types.result)
        except ValueError as error:
            raise ConsoleError(
                f"output {output.name}: {part} does not begin with a .npy header of {output.header} bytes: {error}",
                "header is the number of bytes before the array: 128 for arrays of few dimensions",
            ) from None
    if output.result_dtype:
        return header
    raise ConsoleError(
        f"output {output.name}: the header of {part} is of {types.part.name} values, and the {output.how} is of "
        f"{types.result.name} values",
        f'result_dtype = "{types.result.name}" copies the header as it is; "{types.part.name}" keeps the type',
    )


def _npy_header(numpy: Any, header: bytes, dtype: Any) -> bytes:
    """``header``, of a ``.npy`` file, for an array of the type ``dtype``. Raises ValueError."""
    form, old, new = numpy.lib.format, io.BytesIO(header), io.BytesIO()
    version = form.read_magic(old)
    shape, by_columns, _ = (form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0)(old)
    told = {"descr": form.dtype_to_descr(dtype), "fortran_order": by_columns, "shape": shape}
    form.write_array_header_1_0(new, told)
    return new.getvalue() + header[old.tell() :]


def _types(numpy: Any, output: Output) -> _Types:
    part = _dtype(numpy, output, output.dtype)
    asked = _dtype(numpy, output, output.result_dtype) if output.result_dtype else None
    if part.kind in "biu":
        in_floats = output.how == "mean" or (asked is not None and asked.kind in "fc")
        wide = numpy.dtype("float64" if in_floats else "uint64" if part.kind == "u" else "int64")
        result = wide.newbyteorder(part.byteorder)
    else:
        double = numpy.dtype("complex128" if part.kind == "c" else "float64")
        wide = part.newbyteorder("=") if part.itemsize > double.itemsize else double
        result = part
    if asked is not None:
        result = asked
        if asked.kind == "b" or _ORDER[asked.kind] < _ORDER[wide.kind]:
            raise ConsoleError(
                f"output {output.name}: the {output.how} of {output.dtype} does not go into {output.result_dtype}",
                f'result_dtype = "{wide.name}", for example',
            )
    return _Types(part, wide, result)


def _dtype(numpy: Any, output: Output, name: str) -> Any:
    try:
        dtype = numpy.dtype(name)
    except TypeError:
        raise ConsoleError(f"output {output.name}: numpy knows no dtype {name!r}", _TYPES) from None
    if dtype.kind not in _ORDER:
        raise ConsoleError(f"output {output.name}: arrays of {name!r} cannot be added up", _TYPES)
    return dtype


def _end_of_arrays(numpy: Any, output: Output, dtype: Any, parts: Sequence[str]) -> int:
    """The size that all parts must have, and have."""
    if output.shape:
        wanted: int = output.header + int(numpy.prod(output.shape)) * dtype.itemsize
    else:
        wanted = os.path.getsize(parts[0])
        if (wanted - output.header) % dtype.itemsize or wanted < output.header:
            raise ConsoleError(
                f"{parts[0]} has {wanted} bytes: no header of {output.header} and whole values of {output.dtype}",
                "dtype and header must be those of what the sections write",
            )
    for part in parts:
        if os.path.getsize(part) != wanted:
            raise ConsoleError(
                f"{part} has {os.path.getsize(part)} bytes, and the arrays of output {output.name} have {wanted}",
                "dtype, shape and header must be those of what the sections write",
            )
    return wanted


def _total(numpy: Any, output: Output, types: _Types, parts: Sequence[str], at: int, size: int) -> Any:
    """The sum of the values in ``size`` bytes from ``at`` of all parts."""
    total: Any = None
    for part in parts:
        with open(part, "rb") as file:
            file.seek(at)
            values = numpy.frombuffer(file.read(size), types.part).astype(types.wide)
        if total is None:
            total = values
            continue
        with numpy.errstate(all="ignore"):
            added = total + values
        if types.wide.kind == "u":
            over = added < total
        elif types.wide.kind == "i":
            over = ((total ^ added) & (values ^ added)) < 0
        else:
            over = numpy.isfinite(total) & numpy.isfinite(values) & ~numpy.isfinite(added)
        if over.any():
            raise _overflow(output, types.wide)
        total = added
    return total


def _converted(numpy: Any, output: Output, total: Any, result: Any) -> Any:
    """``total`` as an array of the type ``result``, with the same values as far as its precision allows."""
    if result.kind in "iu" and total.size:
        limits = numpy.iinfo(result)
        if int(total.min()) < limits.min or int(total.max()) > limits.max:
            raise _overflow(output, result)
    with numpy.errstate(all="ignore"):
        converted = total.astype(result)
    if (numpy.isfinite(total) & ~numpy.isfinite(converted)).any():
        raise _overflow(output, result)
    return converted


def _overflow(output: Output, dtype: Any) -> ConsoleError:
    return ConsoleError(
        f"output {output.name}: a value of the {output.how} is too large for {dtype.name}",
        'a larger type: result_dtype = "float64", or a larger dtype that the sections write',
    )


def _numpy() -> Any:
    try:
        numpy = importlib.import_module("numpy")  # the sections' programs use it; Redmesh itself does not need it
    except ImportError:
        raise ConsoleError(
            "sum and mean of arrays need numpy, which is not installed", "pip install numpy, then resume"
        ) from None
    return numpy
