"""What can be done with a launch that is watched."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("run.pane", "tab", "Pane", "ranks, output, completion table", "app.focus_next", footer=True),
    Action("run.all-ranks", "a", "All", "output of all ranks again, and signals to all", "all_ranks", footer=True),
    Action("run.next-rank", "right_square_bracket", "Next rank", "the next rank's output alone", "rank(1)"),
    Action("run.previous-rank", "left_square_bracket", "Previous rank", "the rank's before", "rank(-1)"),
    Action("run.usr1", "u", "USR1", "send SIGUSR1", "signal(10)", "yod -signal USR1 {launcher}", True, True,
           group="USR1/2"),
    Action("run.usr2", "U", "USR2", "send SIGUSR2", "signal(12)", "yod -signal USR2 {launcher}", True, True,
           group="USR1/2"),
    Action("run.term", "t", "TERM", "send SIGTERM, after a question", "signal(15)", "yod -signal TERM {launcher}",
           True, True),
    Action("run.kill", "K", "KILL", "send SIGKILL, after a question", "signal(9)", "yod -signal KILL {launcher}",
           True, True),
    Action("run.reattach", "r", "Re-attach", "connect again to a launch that is out of sight", "reattach",
           "yod --attach {launcher}", True),
    Action("run.close", "x", "Close", "close this tab; the launch goes on", "close", footer=True),
    Action("run.mesh", "escape", "Mesh", "back to the map; the launch goes on", "app.show('mesh')"),
)  # fmt: skip

RANKS = (
    Action("ranks.alone", "enter", "Alone", "this rank's output alone, and signals to it alone", "choose",
           "yod --attach {launcher} -label", True),
)  # fmt: skip
