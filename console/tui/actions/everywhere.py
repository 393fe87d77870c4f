"""What can be done on every screen."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("app.mesh", "m", "Mesh", "the map of the machine", "show('mesh')", "showmesh --watch", footer=True),
    Action("app.launchers", "1", "Launchers", "the table of launchers", "show('launchers')", "pingd -verbose"),
    Action("app.partitions", "2", "Partitions", "the table of partitions", "show('partitions')", "mesh partition list"),
    Action("app.nodes", "3", "Nodes", "the table of nodes", "show('nodes')", "showmesh --json"),
    Action("app.events", "4", "Events", "the table of events", "show('events')", "mesh record -"),
    Action("app.go-to", "colon", "Go to", "a place by its name: node n12, launcher 7, select free & c3-*", "go_to"),
    Action("app.back", "left_square_bracket", "Back", "where one was before", "trail(-1)"),
    Action("app.forth", "right_square_bracket", "Forth", "and back again", "trail(1)"),
    Action("app.launch", "n", "Launch", "the launch form", "show('launch')", "yod PROGRAM", footer=True),
    Action("app.previous-tab", "less_than_sign,comma", "Previous tab", "the tab on the left", "tab(-1)"),
    Action("app.next-tab", "greater_than_sign,full_stop", "Next tab", "the tab on the right", "tab(1)"),
    Action("app.help", "question_mark", "Help", "the keys of this screen", "help", footer=True),
    Action("app.palette", "ctrl+p", "Palette", "every action by name", "command_palette"),
    Action("app.theme", "", "Theme", "dark, light, high contrast, monochrome …", "change_theme"),
    Action(
        "app.read-only", "ctrl+r", "Read only", "switch all that changes anything off, and on again", "read_only",
        "mesh console --read-only",
    ),
    Action("app.quit", "q", "Quit", "leave; what runs goes on", "quit", footer=True),
)  # fmt: skip
