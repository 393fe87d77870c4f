"""What can be done in the tables."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("table.filter", "slash", "Filter", "regular expression; ! inverts it, ~ takes letters in their order",
           "filter", footer=True),
    Action("table.sort", "s", "Sort", "by the next column (also: a click on its head)", "sort(1)", footer=True),
    Action("table.sort-back", "S", "Sort back", "by the column before", "sort(-1)"),
    Action("table.reverse", "r", "Reverse", "the other way round", "reverse", footer=True),
    Action("table.mark", "space", "Mark", "mark the row, or unmark it, and go on", "mark", footer=True),
    Action("table.mark-all", "ctrl+a", "Mark all", "mark all that is shown, or unmark all", "mark_all"),
    Action("table.attach", "a", "Attach", "watch the launcher of the row", "attach", "yod --attach {launcher}",
           footer=True),
    Action("table.map", "M", "On the map", "select on the map what the marked rows stand for", "on_map"),
    Action("table.ended", "e", "Ended", "launchers that have ended too, or only those that live", "ended",
           "mesh history", footer=True),
    Action("table.export", "x", "Export", "write what is shown to a file, CSV or JSON by its name", "export",
           footer=True),
    Action("table.copy", "y", "Copy", "copy the names of the marked rows", "copy"),
    Action("table.drain", "D", "Drain", "these nodes: what runs there runs on, nothing new starts", "do('drain')",
           "mesh drain {nodes}", changes=True),
    Action("table.resume", "R", "Resume", "put drained nodes back", "do('resume')", "mesh resume {nodes}",
           changes=True),
    Action("table.term", "T", "TERM", "SIGTERM to the launches there", "do('term')",
           "pingd -interrupt -list {processors}", changes=True),
    Action("table.kill", "K", "Kill", "kill the launches there and free all they have", "do('kill')",
           "pingd -kill -list {processors}", changes=True),
    Action("table.back", "escape", "Back", "unmark all; drop the filter; then: the map", "out"),
)  # fmt: skip

ROWS = (
    Action("rows.open", "enter", "Open", "a node on the map, a launcher's run view, a partition's processors",
           "choose", footer=True),
    Action("rows.page-up", "pageup,ctrl+b", "Page up", "a screen up", "page(-1)"),
    Action("rows.page-down", "pagedown,ctrl+f", "Page down", "a screen down", "page(1)"),
)  # fmt: skip
