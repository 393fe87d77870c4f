"""What can be done with a launch that is watched."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("run.pane", "tab", "Pane", "ranks, output, completion table", "app.focus_next"),
    Action("run.stacks", "s", "Stacks", "where all ranks are: their stacks, merged", "stacks",
           "mesh stacks {launcher}", True),
    Action("run.filter", "f", "Filter", "lines of some ranks, nodes, a stream, or that match: rank:0-3 node:n1"
           " stream:err !regex", "filter", "yod --attach {launcher} -label | grep …", True),
    Action("run.search", "slash", "Search", "look for a regular expression; n and N go on", "search"),
    Action("run.next-match", "n", "Next match", "the next line that matches", "match(1)"),
    Action("run.previous-match", "N", "Match before", "the line before that matches", "match(-1)"),
    Action("run.gather", "equals_sign", "Gather", "what many ranks wrote alike in one row, or each by itself", "gather",
           "yod -gather …"),
    Action("run.stamps", "ctrl+t", "Times", "when each line came, or not", "stamps"),
    Action("run.pause", "p", "Pause", "stop following the end, or follow it again", "pause"),
    Action("run.save", "w", "Save", "what is shown into a file", "save", "yod --attach {launcher} -label > FILE"),
    Action("run.copy", "y", "Copy", "the lines in sight into the clipboard", "copy"),
    Action("run.input", "i", "Input", "a line for the ranks' standard input; ^D ends it", "input",
           "yod --feed {launcher}", True, True),
    Action("run.all-ranks", "a", "All", "all ranks again: in the output, and for signals", "all_ranks", footer=True),
    Action("run.next-rank", "right_square_bracket", "Next rank", "the next rank alone", "rank(1)"),
    Action("run.previous-rank", "left_square_bracket", "Rank before", "the rank before alone", "rank(-1)"),
    Action("run.release", "R", "Release", "let held ranks run", "release", "yod --release {launcher}", True, True),
    Action("run.debug", "d", "Debug", "gdb, pdb, strace … on one rank, on the whole terminal", "debug",
           "mesh debug {launcher} {rank} gdb", False, True),
    Action("run.usr1", "u", "USR1", "send SIGUSR1", "signal(10)",
           "yod -signal USR1 {launcher}{ranks}", True, True, group="USR1/2"),
    Action("run.usr2", "U", "USR2", "send SIGUSR2", "signal(12)",
           "yod -signal USR2 {launcher}{ranks}", True, True, group="USR1/2"),
    Action("run.term", "t", "TERM", "send SIGTERM, after a question", "signal(15)",
           "yod -signal TERM {launcher}{ranks}", True, True),
    Action("run.kill", "K", "KILL", "send SIGKILL, after a question", "signal(9)",
           "yod -signal KILL {launcher}{ranks}", True, True),
    Action("run.again", "L", "Again", "the launch form, filled in as this one was", "again", "yod …"),
    Action("run.reattach", "r", "Re-attach", "connect again to a launch that is out of sight", "reattach",
           "yod --attach {launcher}", True),
    Action("run.close", "x", "Close", "close this tab; the launch goes on", "close"),
    Action("run.back", "escape", "Back", "end the search, the filter, the choice of ranks; then back to the map",
           "back"),
)  # fmt: skip

RANKS = (
    Action("ranks.alone", "enter", "Alone", "this rank alone: its output, and for signals", "choose",
           "yod --attach {launcher} -label", True),
    Action("ranks.mark", "space", "Mark", "this rank too, or no longer", "mark"),
)  # fmt: skip
PROMPT = (
    Action("prompt.leave", "escape", "Leave", "close the line", "leave", priority=True),
    Action("prompt.end-input", "ctrl+d", "End", "end standard input", "end_input"),
)
