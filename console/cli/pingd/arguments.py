"""pingd's table of words, and the additional text of -xtrahelp."""

from console.cli.options.parser import Word

USAGE = "pingd [options] [LIST]"
ABOUT = """Lists every processor: its number and node, and if it is in use the launcher, login processor/pid, rank,
user and elapsed time; then totals. Or does something to what is selected, and asks before it does."""
_WHICH, _HOW, _VERBS = "Which processors (all of what is given has to hold)", "How they are shown", "What is done"
_GONE = "The original's words that are refused, with what there is instead"

WORDS = (
    Word("all", "flag", "every processor; the default of a listing, and to be said for a verb", original=True,
         group=_WHICH),
    Word("list", "text", "these alone: 0..3,8,node[01-04]; the word may be left out", metavar="LIST",
         original=True, group=_WHICH),
    Word("job", "int", "those of this launcher", metavar="ID", original=True, group=_WHICH),
    Word("pbsjob", "text", "those of this batch job", metavar="ID", original=True, group=_WHICH),
    Word("mine", "flag", "those that run something of mine, or are in my partition", original=True, group=_WHICH),
    Word("fast", "flag", "ask no node; here none is ever asked", original=True, group=_WHICH),
    Word("verbose", "flag", "columns of state: processor, mode, partition, node", original=True, group=_HOW),
    Word("summary", "flag", "the totals alone", original=True, group=_HOW),
    Word("parse", "flag", "a line of words for each processor, for scripts", original=True, group=_HOW),
    Word("json", "flag", "for programs", group=_HOW),
    Word("watch", "flag", "again and again, in place on a terminal, once for every change elsewhere; ^C ends it",
         group=_HOW),
    Word("every", "seconds", "how often --watch looks (default: 1)", metavar="S", group=_HOW),
    Word("interrupt", "flag", "SIGTERM to the ranks of the launches there, as a first ^C", original=True, group=_VERBS),
    Word("kill", "flag", "kill the launches there and free all their processors", original=True, group=_VERBS),
    Word("reset", "flag", "the same for what is stuck; drains nodes that stay unclean, puts drained ones back",
         original=True, group=_VERBS),
    Word("gone", "flag", "take the nodes out: what runs there runs on, nothing new starts", original=True,
         group=_VERBS),
    Word("reserve", "text", "keep the processors for one user: a name or a uid", metavar="USER", original=True,
         group=_VERBS),
    Word("unreserve", "flag", "give them back to all", original=True, group=_VERBS),
    Word("NoInquire", "flag", "do not ask", "no-inquire", original=True, group=_VERBS),
    Word("nicekill", "flag", "not here: launches with -nice end when a launch that waits needs their processors",
         original=True, group=_GONE),
    Word("Scan", "flag", "not here: nodes report themselves (mesh doctor looks at every host)", original=True,
         group=_GONE),
    Word("nid", "text", "not here: pingd reads the system database (-config names another mesh)", metavar="N",
         original=True, group=_GONE),
    Word("pid", "text", "not here: likewise", metavar="P", original=True, group=_GONE),
    Word("PBSsupport", "text", "not here: batch jobs have partitions, which their users cannot leave", metavar="on|off",
         original=True, group=_GONE),
    Word("PBSupdate", "text", "not here: the batch system makes the partitions itself", metavar="on|off",
         original=True, group=_GONE),
    Word("PBSinteractive", "text", "not here: mesh mode interactive LIST", metavar="N", original=True, group=_GONE),
    Word("PBSlist", "flag", "not here: mesh partition list", original=True, group=_GONE),
    Word("Debug", "flag", "not here: mesh status, and the daemons' logs", original=True, group=_GONE),
    Word("config", "text", "the configuration file to read", metavar="FILE", group="Others"),
    Word("version", "flag", "print the version", group="Others"),
    Word("help", "flag", "this page", letter="h", original=True, group="Others"),
    Word("xtrahelp", "flag", "this page, and more about what there is to see and to do", original=True, group="Others"),
)  # fmt: skip

#: Words for actions; at most one may be given.
VERBS = ("interrupt", "kill", "reset", "gone", "reserve", "unreserve")
#: Words of the original that are refused: the reason, and what to do instead.
REFUSED = {
    "nicekill": (
        "launches with -nice end by themselves when a launch that waits needs their processors",
        "yod -wait-for-nodes waits; pingd -interrupt and -kill end launches now",
    ),
    "Scan": ("nodes report themselves, so there is nothing to look for", "mesh doctor looks at every host"),
    "nid": ("pingd reads the system database and asks no allocator", "-config FILE names another mesh"),
    "pid": ("pingd reads the system database and asks no allocator", "-config FILE names another mesh"),
    "PBSsupport": (
        "a batch job's launches stay inside its partition always",
        "mesh partition create makes one; mesh mode says whom processors serve",
    ),
    "PBSupdate": (
        "the batch system makes and ends partitions itself",
        "mesh partition list shows them; mesh status shows nodes that are down",
    ),
    "PBSinteractive": ("the processors of the interactive pool are named", "mesh mode interactive LIST"),
    "PBSlist": ("partitions have a command of their own", "mesh partition list"),
    "Debug": ("there is nothing to switch on", "mesh status shows the daemons and where their logs are"),
}
#: Words that select; an action needs one of them.
SELECTORS = ("all", "list", "job", "pbsjob", "mine")

EXTRA = """
What a row says:
      12 ( n3 )                                            nobody uses it
      12 ( n3 )  301  login1/4711  7 ada  39:36:54         launcher, login processor/pid, rank, user, time since GO
      12 ( n3 )  301  login1/4711  7 ada  39:36:54  PBS # 4242          … in a partition of batch job 4242.pbs
      12 ( n3 )  301  login1/4711  - ada  pending allocation            … its processes have not begun yet
      12 ( n3 )  down                                      or stale, reserved, in partition 5

What -parse writes, separated by single blanks, - for nothing:
  processor node state mode launcher login pid rank user seconds partition batch-job

Rights: users touch their own launches; all others, and nodes and reservations, are for administrators (a CPA decides).
Status: 0 for a listing, also an empty one, and for help; 1 when a verb selected nothing or was not confirmed;
125 when it was refused or could not be done; 2 for a wrong command line.
"""
