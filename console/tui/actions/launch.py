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
    Action("launch.back", "escape", "Back", "back to the map; the form keeps what is in it", "app.show('mesh')",
           footer=True),
)  # fmt: skip

FIELD = (Action("field.start", "enter", "Launch", "launch it", "submit", footer=True),)

CHOICE = (
    Action("choice.next", "right,l,space", "Next", "the next word", "step(1)"),
    Action("choice.previous", "left,h", "Previous", "the word before", "step(-1)"),
)
