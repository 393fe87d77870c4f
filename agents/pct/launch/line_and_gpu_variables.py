"""Variables that differ between ranks: the place in a load file's line, and GPUs. Imported only if a load needs
them."""

from __future__ import annotations

from agents.link.journal import Journal
from agents.pct.errors import LoadFailed
from agents.pct.launch.load import Load, Program
from redmesh.byte_text import from_bytes

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Sequence

#: The variables of each vendor's runtime. AMD filters twice: HIP counts within what ROCR lets through, and ignores
#: CUDA's variable, which it also knows, if its own is set.
_DEVICES = (b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"ZE_AFFINITY_MASK")
_WITHIN = b"HIP_VISIBLE_DEVICES"
_SEGMENT = (b"YOD_SEGMENT", b"YOD_SEGMENT_RANK", b"YOD_SEGMENT_SIZE")


class OwnVariables:
    """The variables of every rank on this node. Raises LoadFailed if the load names GPUs that the node lacks.

    ``devices`` are the machine's numbers of the node's GPUs; a load counts from 0 on every node.
    """

    def __init__(self, load: Load, program: Program, devices: "Sequence[int]") -> None:
        self._program = program
        self._gpus: "Dict[int, List[int]]" = {}
        wanted = load.nodes[0].get("gpus")
        if wanted is not None:
            try:
                for rank, indices in zip(load.ranks, wanted):  # noqa: B905  (strict needs Python 3.10)
                    self._gpus[rank] = [devices[index] for index in indices if index >= 0]
                    if len(self._gpus[rank]) != len(indices):
                        raise IndexError
            except (IndexError, TypeError):
                raise LoadFailed(f"{load.name}: the load names GPUs that are not here", "node") from None

    def names(self) -> "List[bytes]":
        """Variables to remove from the launcher's environment, because the first entry of an environment counts."""
        lines = {name: None for segment in self._program.segments for name in segment.env}  # each once, in order
        return [*(_DEVICES + (_WITHIN,) if self._gpus else ()), *(_SEGMENT if self._program.subgroups else ()), *lines]

    def of(self, rank: int) -> "Dict[bytes, bytes]":
        """The variables of ``rank``."""
        own: "Dict[bytes, bytes]" = {}
        given = _DEVICES + (_WITHIN,) + _SEGMENT if self._gpus else _SEGMENT
        if rank in self._gpus:
            devices = b",".join(b"%d" % device for device in self._gpus[rank])
            own.update(dict.fromkeys(_DEVICES, devices))
            own[_WITHIN] = b",".join(b"%d" % index for index in range(len(self._gpus[rank])))
        if self._program.subgroups:
            segment = self._program.segment_of(rank)
            numbers = (self._program.segments.index(segment), rank - segment.first, segment.size)
            own.update((name, b"%d" % number) for name, number in zip(_SEGMENT, numbers))  # noqa: B905
            all_have = self._program.env
            for other in self._program.segments:  # what only another line sets has the launcher's value here
                own.update((name, all_have[name]) for name in other.env if name in all_have and name not in own)
            own.update((name, value) for name, value in segment.env.items() if name not in given)
        return own

    def entries(self, rank: int) -> "List[bytes]":
        """The variables in the form of an environment."""
        return [name + b"=" + value for name, value in self.of(rank).items()]


def own_variables(load: Load, program: Program, devices: "Sequence[int]", log: Journal) -> OwnVariables:
    """The variables of every rank on this node; logs the lines' roots that are here. Raises LoadFailed."""
    own = OwnVariables(load, program, devices)
    if program.subgroups:
        for number, segment in enumerate(program.segments):
            if segment.first in load.ranks:
                path = from_bytes(segment.path)
                log.write(
                    "subgroup",
                    launcher=load.launcher,
                    segment=number,
                    root=segment.first,
                    ranks=segment.size,
                    path=path,
                )
    return own
