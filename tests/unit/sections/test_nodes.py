"""Nodes that may run sections, as the cause of a job's failure names them."""

from agents.job.parts.sections.nodes import SectionNodes


def nodes_of(reasons: dict[str, str]) -> SectionNodes:
    nodes = SectionNodes(60.0)
    for node, reason in reasons.items():
        nodes.state(node, 0.0)
        nodes.test(node, node)
        nodes.tested(node, node, reason, 0.0)
    return nodes


def test_nodes_that_were_left_out_are_named_with_their_reasons() -> None:
    assert nodes_of({"n0": ""}).left_out() == ""
    assert nodes_of({"n1": "no scratch", "n0": "", "n2": "full"}).left_out() == "; left out: n1 (no scratch), n2 (full)"


def test_of_many_nodes_some_are_named() -> None:
    told = nodes_of({f"n{number}": "full" for number in range(8)}).left_out()
    assert told.endswith("n4 (full), and 3 nodes more")
