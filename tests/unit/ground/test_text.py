"""A count agrees with its noun."""

from redmesh.text import counted


def test_one_and_many() -> None:
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert [counted(number, "request waits", "requests wait") for number in (1, 2)] == [
        "1 request waits",
        "2 requests wait",
    ]


def test_large_numbers_may_be_grouped() -> None:
    assert counted(10_368, "row", form=",") == "10,368 rows"
