"""What can be done in the launch form."""

from console.tui.actions.action import Action

ACTIONS = (
    Action(
        "launch.start", "enter", "Launch", "start yod --detach with this line, and attach to it", "launch",
        "yod --detach …", footer=True, changes=True,
    ),
    # at once, so that what is typed right behind it goes to the next field
    Action("launch.next-field", "tab", "Next field", "the next field", "app.focus_next", footer=True, priority=True),
    Action("launch.previous-field", "shift+tab", "Previous field", "the field before", "app.focus_previous",
           priority=True),
    Action("launch.down", "down", "Field below", "the field below", "app.focus_next"),
    Action("launch.up", "up", "Field above", "the field above", "app.focus_previous"),
    Action("launch.preview", "ctrl+t", "Preview", "where the ranks would go; nothing is started", "preview",
           "yod --dry-run …", True, priority=True),
    Action("launch.presets", "ctrl+o", "Before", "launches of before, and those with a name", "presets", footer=True,
           priority=True),
    Action("launch.name", "ctrl+s", "Name it", "keep this form under a name", "name", footer=True, priority=True),
    Action("launch.copy", "ctrl+y", "Copy line", "the yod line into the clipboard", "copy", priority=True),
    Action("launch.clear", "ctrl+l", "Clear", "an empty form", "clear", priority=True),
    Action("launch.back", "escape", "Back", "back to the map; the form keeps what is in it", "back", footer=True),
)  # fmt: skip

FIELD = (Action("field.start", "enter", "Launch", "launch it", "submit", footer=True),)

CHOICE = (
    Action("choice.next", "right,l,space", "Next", "the next word", "step(1)"),
    Action("choice.previous", "left,h", "Previous", "the word before", "step(-1)"),
)
