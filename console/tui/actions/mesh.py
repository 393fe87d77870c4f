"""What can be done on the map and in the list beside it."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("mesh.zoom-out", "escape", "Back", "unselect all; then: zoom out", "out", footer=True),
    Action("mesh.attach", "a", "Attach", "watch the launcher under the cursor", "attach", "yod --attach {launcher}",
           footer=True),
    Action("mesh.select", "space", "Select", "select what is under the cursor, or unselect it", "select", footer=True),
    Action("mesh.range", "v", "Range", "select all up to where the cursor goes; again: done", "range"),
    Action("mesh.select-group", "c", "Select group", "select the cabinet, or the node, one is in", "select_group"),
    Action("mesh.select-launcher", "o", "Select launcher", "select all that the launcher under the cursor has",
           "select_launcher"),
    Action("mesh.select-state", "s", "Select state", "select all that are in the same state", "select_state"),
    Action("mesh.invert", "i", "Invert", "select all that are not, and no others", "invert"),
    Action("mesh.expression", "e,slash", "Choose", "select by an expression: node[1-8] & free, user=ada | stale",
           "expression", footer=True),
    Action("mesh.whole", "z", "Whole/all", "the whole machine on the screen, or every processor a cell", "whole"),
    Action("mesh.launch-here", "H", "Launch here", "the launch form with these processors", "launch_here",
           "yod -list {processors} PROGRAM", changes=True),
    Action("mesh.drain", "D", "Drain", "these nodes: what runs there runs on, nothing new starts", "do('drain')",
           "mesh drain {nodes}", changes=True),
    Action("mesh.resume", "R", "Resume", "put drained nodes back", "do('resume')", "mesh resume {nodes}",
           changes=True),
    Action("mesh.reserve", "B", "Reserve", "keep these processors for one user", "do('reserve')",
           "pingd -reserve USER -list {processors}", changes=True),
    Action("mesh.unreserve", "U", "Unreserve", "give them back to all", "do('unreserve')",
           "pingd -unreserve -list {processors}", changes=True),
    Action("mesh.term", "T", "TERM", "SIGTERM to the launches there", "do('term')",
           "pingd -interrupt -list {processors}", changes=True),
    Action("mesh.kill", "K", "Kill", "kill the launches there and free all they have", "do('kill')",
           "pingd -kill -list {processors}", changes=True),
    Action("mesh.reset", "X", "Reset", "end what is there and clean these nodes, whatever is stuck", "do('reset')",
           "pingd -reset -list {nodes}", changes=True),
    Action("mesh.copy", "y", "Copy nodes", "copy the selection as a list of nodes", "copy('nodes')"),
    Action("mesh.copy-processors", "Y", "Copy processors", "copy it as a list of processors", "copy('processors')"),
    Action("mesh.other", "tab", "Map/List", "between the map and the list of launchers", "app.focus_next"),
)  # fmt: skip

MAP = (
    Action("map.zoom-in", "enter", "Zoom in", "machine, cabinet, node; at a node: attach (also: a second click)",
           "choose", footer=True),
    Action("map.next-group", "w", "Next", "the next cabinet or node", "group(1)"),
    Action("map.previous-group", "b", "Previous", "the one before", "group(-1)"),
    Action("map.extend-left", "shift+left", "Extend left", "select on the way to the left", "extend('left')"),
    Action("map.extend-down", "shift+down", "Extend down", "select on the way down", "extend('down')"),
    Action("map.extend-up", "shift+up", "Extend up", "select on the way up", "extend('up')"),
    Action("map.extend-right", "shift+right", "Extend right", "select on the way to the right", "extend('right')"),
)  # fmt: skip

LAUNCHERS = (
    Action("launchers.attach", "enter", "Attach", "watch it", "choose", "yod --attach {launcher}", footer=True),
)
