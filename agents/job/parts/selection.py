"""Which parts a job has, by its description. The order is that in which the owner asks them."""

from __future__ import annotations

from agents.job.parts.additions import AddedTasks
from agents.job.parts.order import Order
from agents.job.parts.recalls import Recalls
from agents.job.parts.user_commands import UserCommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

    from agents.job.description import Description
    from agents.job.parts.part import Part
    from redmesh.state import StateObject


def select(described: Description, job: StateObject) -> List[Part]:
    """The parts of a job, except for its standby. Raises OSError if the disk is full."""
    parts: List[Part] = [UserCommands()]
    if described.package:
        from agents.job.parts.package import Package

        parts.append(Package(job, described.package))
    functions, rules = described.function_rules, described.section_rules
    if functions is not None:
        from agents.job.parts.functions import Functions

        parts.append(Functions(functions))
    if functions is None and rules is None:
        order = Order()
        parts += [order, AddedTasks(order)]
    if rules is None:
        return [*parts, Recalls()]
    from agents.job.parts.sections.copies import Copies
    from agents.job.parts.sections.node_tests import NodeTests
    from agents.job.parts.sections.outputs import Outputs
    from agents.job.parts.sections.ranks import Ranks

    tests = NodeTests(rules)
    parts += [Ranks(rules, tests)] if rules.size > 1 else []
    parts += [tests, Outputs(rules)]
    parts += [Copies()] if rules.copies else []
    return parts
