"""What can be done on the map and in the list beside it."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("mesh.other", "tab", "Map/List", "between the map and the list of launchers", "app.focus_next", footer=True),
)  # fmt: skip

MAP = (
    Action("map.next-node", "w", "Next node", "the next node", "node(1)"),
    Action("map.previous-node", "b", "Previous node", "the node before", "node(-1)"),
    Action(
        "map.attach", "enter", "Attach", "watch the launcher under the cursor", "choose", "yod --attach {launcher}",
        footer=True,
    ),
)  # fmt: skip

LAUNCHERS = (
    Action("launchers.attach", "enter", "Attach", "watch it", "choose", "yod --attach {launcher}", footer=True),
)
