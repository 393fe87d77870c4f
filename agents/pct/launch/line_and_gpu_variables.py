"""Variables that differ from rank to rank: place in a load file's line, and GPUs. Loaded only with such a load."""

from __future__ import annotations

from agents.link.journal import Journal
from agents.pct.errors import LoadFailed
from agents.pct.launch.load import Load, Program

TYPE_CHECKING = False  # importing typing costs time and, in every fork, memory
if TYPE_CHECKING:
    from typing import Dict, List, Sequence

#: What each maker's runtime reads. AMD's filters twice: HIP counts within what ROCR has let through, and where
#: HIP's own variable is set it does not look at CUDA's, which it knows too.
_DEVICES = (b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"ZE_AFFINITY_MASK")
_WITHIN = b"HIP_VISIBLE_DEVICES"
_SEGMENT = (b"YOD_SEGMENT", b"YOD_SEGMENT_RANK", b"YOD_SEGMENT_SIZE")


class OwnVariables:
    """The variables of every rank here. LoadFailed when the load names GPUs that the node does not have.

    ``devices`` are the node's GPUs as this machine numbers them; a load counts from 0 on every node.
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
        """What must not be left of the launcher's own, for what stands first in an environment counts."""
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
            for other in self._program.segments:  # what another line sets, this one has as the launcher has it
                own.update((name, all_have[name]) for name in other.env if name in all_have and name not in own)
            own.update((name, value) for name, value in segment.env.items() if name not in given)
        return own

    def entries(self, rank: int) -> "List[bytes]":
        """The same as they stand in an environment."""
        return [name + b"=" + value for name, value in self.of(rank).items()]


def own_variables(load: Load, program: Program, devices: "Sequence[int]", log: Journal) -> OwnVariables:
    """The variables of every rank here; the log names the lines' roots that are here. LoadFailed."""
    own = OwnVariables(load, program, devices)
    if program.subgroups:
        for number, segment in enumerate(program.segments):
            if segment.first in load.ranks:
                path = segment.path.decode("utf-8", "replace")
                log.write(
                    "subgroup",
                    launcher=load.launcher,
                    segment=number,
                    root=segment.first,
                    ranks=segment.size,
                    path=path,
                )
    return own
