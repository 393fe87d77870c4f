"""What can be done with what stands over a screen."""

from console.tui.actions.action import Action

PAGE = (
    Action("page.close", "escape,q,enter", "Close", "close the page", "close"),
    Action("page.down", "down,j", "Down", "a line down", "scroll(1)"),
    Action("page.up", "up,k", "Up", "a line up", "scroll(-1)"),
    Action("page.page-down", "pagedown,ctrl+f,space", "Page down", "a screen down", "scroll(20)"),
    Action("page.page-up", "pageup,ctrl+b", "Page up", "a screen up", "scroll(-20)"),
    Action("page.copy", "y", "Copy", "all of it into the clipboard", "copy"),
)

CHOOSING = (
    Action("choosing.close", "escape", "Close", "take nothing", "close", priority=True),
    Action("choosing.down", "down", "Down", "the next one", "move(1)", priority=True),
    Action("choosing.up", "up", "Up", "the one before", "move(-1)", priority=True),
    Action("choosing.forget", "delete", "Forget", "forget it", "forget", priority=True),
)
