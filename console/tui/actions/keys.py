"""The tables of actions: on the map and in the list beside it first."""

from console.tui.actions.action import Action

MESH = (
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
    Action("mesh.expression", "e,slash", "Choose", "select by an expression: node[1-8] & free, user=ada | suspect",
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
    Action("mesh.other", "tab", "Map/List", "map, list of launchers, the line of what is wrong", "app.focus_next"),
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

WRONG = (Action("wrong.go", "enter", "Go there", "to what the line says is wrong", "app.wrong(0)", footer=True),)


# Actions on a watched launch.


RUN = (
    Action("run.release", "R", "Release", "let held ranks run", "release", "yod --release {launcher}", True, True),
    Action("run.debug", "d", "Debug", "gdb, pdb, strace … on one rank, on the whole terminal", "debug",
           "mesh debug {launcher} {rank} gdb", True, True),
    Action("run.full", "z", "Full screen", "the output alone on the whole terminal, and back", "full", footer=True),
    Action("run.wrap", "W", "Wrap", "long lines on several lines, or cut where the screen ends", "wrap", footer=True),
    Action("run.fold", "b", "Ranks", "fold the ranks beside the output, or unfold them", "fold"),
    Action("run.pane", "tab", "Pane", "ranks, output, completion table", "app.focus_next"),
    Action("run.stacks", "s", "Stacks", "where all ranks are: their stacks, merged", "stacks",
           "mesh stacks {launcher}", True),
    Action("run.filter", "f", "Filter", "lines of some ranks, nodes, a stream, or that match: rank:0-3 node:n1"
           " stream:err !regex", "filter", "yod --attach {launcher} -label | grep …", True),
    Action("run.search", "slash", "Search", "look for a regular expression; n and N go on", "search"),
    Action("run.next-match", "n", "Next match", "in a search: the next line that matches", "match(1)",
           footer=True, group="Next/previous match"),
    Action("run.previous-match", "N", "Match before", "in a search: the line before that matches", "match(-1)",
           footer=True, group="Next/previous match"),
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
    Action("run.usr1", "u", "USR1", "send SIGUSR1, after a question", "signal(10)",
           "yod -signal USR1 {launcher}{ranks}", True, True, group="USR1/2"),
    Action("run.usr2", "U", "USR2", "send SIGUSR2, after a question", "signal(12)",
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
    Action("ranks.extend-left", "shift+left", "Extend left", "the ranks on the way to the left too (also: shift and a"
           " click, or a drag)", "extend('left')"),
    Action("ranks.extend-down", "shift+down", "Extend down", "those on the way down too", "extend('down')"),
    Action("ranks.extend-up", "shift+up", "Extend up", "those on the way up too", "extend('up')"),
    Action("ranks.extend-right", "shift+right", "Extend right", "those on the way to the right too",
           "extend('right')"),
)  # fmt: skip
PROMPT = (
    Action("prompt.leave", "escape", "Leave", "close the line", "leave", footer=True, priority=True),
    Action("prompt.end-input", "ctrl+d", "End", "end standard input", "end_input"),
)


# Actions in the tables.


TABLE_SCREEN = (
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
    Action("table.ended", "e", "Ended", "those that have ended too, or only those that live", "ended",
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

JOBS = (
    Action("jobs.hold", "H", "Hold", "hand out no more tasks; those that run run on", "act('hold')", "mesh hold {job}",
           footer=True, changes=True),
    Action("jobs.release", "C", "Release", "let a held job go on", "act('release')", "mesh release {job}",
           changes=True),
    Action("jobs.retry", "R", "Retry", "try the tasks again that failed or were cancelled", "act('retry')",
           "mesh retry {job}", footer=True, changes=True),
    Action("jobs.resume", "T", "Resume", "go on with a job whose owner was lost", "act('resume')",
           "mesh job resume {job}", footer=True, changes=True),
    Action("jobs.cancel", "K", "Cancel", "end the job, after a question", "act('cancel')", "mesh cancel {job}",
           footer=True, changes=True),
)  # fmt: skip

ROWS = (
    Action("rows.open", "enter", "Open", "a node on the map, a launcher's run view, a partition's processors,"
           " a job's tasks", "choose", footer=True),
    Action("rows.extend-up", "shift+up", "Extend up", "mark on the way up (also: shift and a click, or a drag)",
           "extend(-1)"),
    Action("rows.extend-down", "shift+down", "Extend down", "mark on the way down", "extend(1)"),
    Action("rows.page-up", "pageup,ctrl+b", "Page up", "a screen up", "page(-1)"),
    Action("rows.page-down", "pagedown,ctrl+f", "Page down", "a screen down", "page(1)"),
)  # fmt: skip


# Actions on a shown job.


JOB = (
    Action("job.hold", "H", "Hold", "hand out no more tasks; those that run run on", "act('hold')", "mesh hold {job}",
           True, True, group="Hold/release"),
    Action("job.release", "C", "Release", "let a held job go on", "act('release')", "mesh release {job}", True, True,
           group="Hold/release"),
    Action("job.retry", "R", "Retry", "try the tasks again that failed or were cancelled", "act('retry')",
           "mesh retry {job}", True, True),
    Action("job.resume", "T", "Resume", "go on with a job whose owner was lost", "act('resume')",
           "mesh job resume {job}", True, True),
    Action("job.cancel", "K", "Cancel", "end the job, after a question", "act('cancel')", "mesh cancel {job}",
           True, True),
    Action("job.failure", "f", "Next failure", "the next task that failed", "next_failure",
           "mesh job tasks {job} --state failed", footer=True),
    Action("job.lines", "o", "Log/failures", "the job's log, or the tasks that failed with their last lines",
           "other_lines", "mesh job log {job}", True),
    Action("job.pane", "tab", "Pane", "the tasks, or the lines below", "app.focus_next"),
    Action("job.copy", "y", "Copy", "the job's UUID into the clipboard", "copy"),
    Action("job.close", "x", "Close", "close this tab; the job goes on", "close"),
    Action("job.back", "escape", "Back", "all tasks again; then: the table of jobs", "back", footer=True),
)  # fmt: skip


# Cursor movements: arrows and the keys of vi.


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


# Actions on every screen.


EVERYWHERE = (
    Action("app.mesh", "m", "Mesh", "the map of the machine", "show('mesh')", "showmesh --watch", footer=True),
    Action("app.launchers", "1", "Launchers", "the table of launchers", "show('launchers')", "pingd -verbose"),
    Action("app.partitions", "2", "Partitions", "the table of partitions", "show('partitions')", "mesh partition list"),
    Action("app.nodes", "3", "Nodes", "the table of nodes", "show('nodes')", "showmesh --json"),
    Action("app.events", "4", "Events", "the table of events", "show('events')", "mesh record -"),
    Action("app.tabs", "5", "Tabs", "choose among all tabs", "choose_tab"),
    Action("app.health", "6", "Health", "what is wrong with the mesh", "health", "mesh status"),
    Action("app.wrong", "exclamation_mark", "Wrong", "to what is wrong, the worst first; again: to the next",
           "wrong", "mesh status"),
    Action("app.jobs", "7,J", "Jobs", "the table of jobs of tasks and sections", "show('jobs')", "mesh queue --all"),
    Action("app.go-to", "colon", "Go to, do", "a place or an action by its name: node n12, launcher 7, drain", "go_to"),
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
    Action("app.suspend", "ctrl+z", "Suspend", "back to the shell; fg comes back here", "suspend_process",
           priority=True),
    Action("app.quit", "q", "Quit", "leave; what runs goes on", "quit", footer=True),
)  # fmt: skip


# Actions in the launch form.


LAUNCH_FORM = (
    Action(
        "launch.start", "enter", "Launch", "start yod --detach with this line, and attach to it", "launch",
        "yod --detach …", footer=True, changes=True,
    ),
    # with priority, so that keys typed right after it go to the next field
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
    Action("launch.back", "escape", "Back", "back to where one was; the form keeps what is in it", "back", footer=True),
)  # fmt: skip

FIELD = (Action("field.start", "enter", "Launch", "launch it", "submit", footer=True),)

CHOICE = (
    Action("choice.next", "right,l,space", "Next", "the next word; a letter: the next one with it", "step(1)"),
    Action("choice.previous", "left,h", "Previous", "the word before", "step(-1)"),
)


# Actions on the merged stacks of a launch.


STACKS = (
    Action("stacks.debug", "d", "Debug", "gdb, pdb, strace … on the first rank of the branch", "debug",
           "mesh debug {launcher} {rank} gdb", True, True),
    Action("stacks.beside", "S", "Side by side", "two ranks, or one rank now and before, with what differs marked",
           "beside", footer=True),
    Action("stacks.source", "v", "Source", "show the source lines, or not", "source", footer=True),
    Action("stacks.take", "s", "Again", "take the stacks again", "take", "mesh stacks {launcher}", footer=True),
    Action("stacks.period", "e", "Every", "again every 2, 5 or 15 seconds, or no longer", "period", footer=True),
    Action("stacks.compare", "D", "Difference", "what changed since the time before: + came, − left", "compare",
           footer=True),
    Action("stacks.whole", "o", "Inside MPI", "show what MPI calls inside itself, or not", "whole",
           "mesh stacks --whole {launcher}", True),
    Action("stacks.kind", "w", "Language", "frames of C and Python, of C alone, of Python alone", "kind",
           "mesh stacks --native {launcher}", True),
    Action("stacks.usr1", "u", "USR1", "send SIGUSR1 to the ranks of the branch, after a question", "signal(10)",
           "yod -signal USR1 {launcher}{ranks}", changes=True),
    Action("stacks.stop", "H", "Hold", "stop the ranks of the branch where they are (SIGSTOP)", "signal(19)",
           "yod -signal STOP {launcher}{ranks}", True, True, group="Hold/continue"),
    Action("stacks.continue", "C", "Continue", "let them go on (SIGCONT)", "signal(18)",
           "yod -signal CONT {launcher}{ranks}", True, True, group="Hold/continue"),
    Action("stacks.term", "t", "TERM", "send them SIGTERM, after a question", "signal(15)",
           "yod -signal TERM {launcher}{ranks}", changes=True),
    Action("stacks.kill", "K", "KILL", "send them SIGKILL, after a question", "signal(9)",
           "yod -signal KILL {launcher}{ranks}", changes=True),
    Action("stacks.copy", "y", "Copy", "the tree into the clipboard", "copy('tree')"),
    Action("stacks.copy-ranks", "Y", "Copy ranks", "the ranks of the branch into the clipboard", "copy('ranks')"),
    Action("stacks.back", "escape", "Back", "back to the run view", "back", footer=True),
)  # fmt: skip

BESIDE = (
    Action("beside.exchange", "x", "Exchange", "left becomes right", "exchange", footer=True),
    Action("beside.copy", "y", "Copy", "both stacks into the clipboard", "copy", "mesh stacks {launcher}",
           True),
    Action("beside.back", "escape", "Back", "back to the tree", "back", footer=True),
)  # fmt: skip

TREE = (
    Action("tree.ranks", "enter", "These ranks", "the ranks of this branch alone, in the run view", "choose",
           footer=True),
    Action("tree.shut", "left,h,minus", "Fold", "fold the branch", "screen.fold(True)"),
    Action("tree.open", "right,l,plus", "Unfold", "unfold it", "screen.fold(False)"),
)  # fmt: skip


# Actions in dialogs and pages over a screen.


PAGE = (
    Action("page.close", "escape,q,enter", "Close", "close the page", "close"),
    Action("page.down", "down,j", "Down", "a line down", "scroll(1)"),
    Action("page.up", "up,k", "Up", "a line up", "scroll(-1)"),
    Action("page.page-down", "pagedown,ctrl+f,space", "Page down", "a screen down", "scroll(20)"),
    Action("page.page-up", "pageup,ctrl+b", "Page up", "a screen up", "scroll(-20)"),
    Action("page.wrong", "exclamation_mark", "Wrong", "close the page; to the next thing that is wrong", "wrong"),
    Action("page.copy", "y", "Copy", "all of it into the clipboard", "copy"),
)

CHOOSING = (
    Action("choosing.close", "escape", "Close", "take nothing", "close", priority=True),
    Action("choosing.down", "down", "Down", "the next one", "move(1)", priority=True),
    Action("choosing.up", "up", "Up", "the one before", "move(-1)", priority=True),
    Action("choosing.page-down", "pagedown", "Page down", "a screen down", "page(1)", priority=True),
    Action("choosing.page-up", "pageup", "Page up", "a screen up", "page(-1)", priority=True),
    Action("choosing.forget", "delete", "Forget", "forget it", "forget", priority=True),
)


# Actions on a shown recording (``mesh console --replay FILE``).


REPLAY = (
    Action("replay.pause", "p", "Pause", "stand still, or go on", "replay_pause", footer=True),
    Action("replay.faster", "plus", "Faster", "the next speed, up to 1800 times", "replay_speed(1)"),
    Action("replay.slower", "minus", "Slower", "the speed before", "replay_speed(-1)"),
    Action("replay.forth", "right_parenthesis", "Forth", "10 seconds of the screen on, whatever the speed",
           "replay_seek(10)"),
    Action("replay.back", "left_parenthesis", "Back", "10 seconds of the screen back", "replay_seek(-10)"),
    Action("replay.begin", "0", "Begin", "the beginning of the recording", "replay_begin"),
    Action("replay.at", "at", "At", "an instant: 12:30:00, 35%, +60, -5", "replay_at"),
)  # fmt: skip
