"""Keys that move about: arrows, and vi's beside them."""

from console.tui.actions.action import Action

CELLS = (
    Action("cells.left", "left,h", "Left", "to the left", "move('left')"),
    Action("cells.down", "down,j", "Down", "down", "move('down')"),
    Action("cells.up", "up,k", "Up", "up", "move('up')"),
    Action("cells.right", "right,l", "Right", "to the right", "move('right')"),
    Action("cells.first", "home,g", "First", "the first one", "move('first')"),
    Action("cells.last", "end,G", "Last", "the last one", "move('last')"),
    Action("cells.page-up", "pageup,ctrl+b", "Page up", "a screen up", "move('page_up')"),
    Action("cells.page-down", "pagedown,ctrl+f", "Page down", "a screen down", "move('page_down')"),
    Action("cells.choose", "enter", "Choose", "act on it (also: a second click)", "choose"),
)

LINES = (
    Action("lines.up", "up,k", "Up", "up", "move(-1)"),
    Action("lines.down", "down,j", "Down", "down", "move(1)"),
    Action("lines.first", "home,g", "First", "the first one", "move(-1000000)"),
    Action("lines.last", "end,G", "Last", "the last one", "move(1000000)"),
    Action("lines.choose", "enter", "Choose", "act on it (also: a second click)", "choose"),
)

OUTPUT = (
    Action("output.up", "k", "Up", "a line up; following stops", "scroll_up"),
    Action("output.down", "j", "Down", "a line down", "scroll_down"),
    Action("output.left", "h", "Left", "to the left", "scroll_left"),
    Action("output.right", "l", "Right", "to the right", "scroll_right"),
    Action("output.oldest", "g", "Oldest line", "the oldest line kept", "scroll_home"),
    Action("output.follow", "G,end", "Follow", "the end, and follow it", "follow"),
    Action("output.page-up", "ctrl+b", "Page up", "a screen up", "page_up"),
    Action("output.page-down", "ctrl+f", "Page down", "a screen down", "page_down"),
)
