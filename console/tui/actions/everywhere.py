"""What can be done on every screen."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("app.mesh", "m", "Mesh", "the map of the machine", "show('mesh')", "showmesh --watch", footer=True),
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
