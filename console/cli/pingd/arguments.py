"""pingd's table of words, and the additional text of -xtrahelp."""

from console.cli.options.parser import Word

USAGE = "pingd [options] [LIST]"
ABOUT = """Lists every processor: its number and node, and the launcher, login processor/pid, rank, user and elapsed
time of its rank; then the totals. With an action, acts on the selected processors after a confirmation."""
_WHICH, _HOW, _VERBS = "Which processors (all given conditions must hold)", "Output", "Actions"
_GONE = "Refused options of the original, and what to use instead"

WORDS = (
    Word("all", "flag", "all processors (default of a listing; required for an action on all)", original=True,
         group=_WHICH),
    Word("list", "text", "these processors, for example 0..3,8,node[01-04]; `-list` may be omitted", metavar="LIST",
         original=True, group=_WHICH),
    Word("job", "int", "the processors of this launcher", metavar="ID", original=True, group=_WHICH),
    Word("pbsjob", "text", "the processors of this batch job", metavar="ID", original=True, group=_WHICH),
    Word("mine", "flag", "the processors of my launches and partitions", original=True, group=_WHICH),
    Word("user", "text", "the processors of the launches and partitions of this user, given by name or uid",
         metavar="USER", group=_WHICH),
    Word("fast", "flag", "ask no node (pingd never does)", original=True, group=_WHICH),
    Word("verbose", "flag", "also print the columns state, mode, partition and node", original=True, group=_HOW),
    Word("summary", "flag", "print only the totals", original=True, group=_HOW),
    Word("parse", "flag", "print one line of words for each processor, for scripts", original=True, group=_HOW),
    Word("json", "flag", "print JSON", group=_HOW),
    Word("watch", "flag", "print again after every change, in place if standard output is a terminal; ^C ends it",
         group=_HOW),
    Word("every", "seconds", "the interval of --watch in seconds (default: 1)", metavar="S", group=_HOW),
    Word("interrupt", "flag",
        "send SIGTERM to the ranks of the launches there, as a first ^C does", original=True, group=_VERBS),
    Word("kill", "flag", "kill the launches there and free all their processors", original=True, group=_VERBS),
    Word("reset", "flag",
        "as -kill, also for stuck processors; drain nodes that stay unclean, and resume drained nodes",
         original=True, group=_VERBS),
    Word("gone", "flag", "drain the nodes: running launches continue, no new ones start", original=True, group=_VERBS),
    Word("reserve", "text", "reserve the processors for one user, given by name or uid", metavar="USER", original=True,
         group=_VERBS),
    Word("unreserve", "flag", "end the reservation of the processors", original=True, group=_VERBS),
    Word("NoInquire", "flag", "do not ask for confirmation", "no-inquire", original=True, group=_VERBS),
    Word("nicekill", "flag", "refused: launches with -nice end if a waiting launch needs their processors",
         original=True, group=_GONE),
    Word("Scan", "flag", "refused: nodes report by themselves (mesh doctor checks every host)", original=True,
         group=_GONE),
    Word("nid", "text", "refused: pingd reads the system database (-config selects another mesh)", metavar="N",
         original=True, group=_GONE),
    Word("pid", "text",
        "refused: pingd reads the system database (-config selects another mesh)", metavar="P",
         original=True, group=_GONE),
    Word("PBSsupport", "text",
        "refused: batch jobs have partitions, which their launches cannot leave", metavar="on|off",
         original=True, group=_GONE),
    Word("PBSupdate", "text", "refused: the batch system creates the partitions", metavar="on|off",
         original=True, group=_GONE),
    Word("PBSinteractive", "text", "refused: use mesh mode interactive LIST", metavar="N", original=True, group=_GONE),
    Word("PBSlist", "flag", "refused: use mesh partition list", original=True, group=_GONE),
    Word("Debug", "flag", "refused: use mesh status and the logs of the daemons", original=True, group=_GONE),
    Word("config", "text", "the configuration file to read", metavar="FILE", group="Others"),
    Word("version", "flag", "print the version", group="Others"),
    Word("help", "flag", "print this page", letter="h", original=True, group="Others"),
    Word("xtrahelp", "flag",
        "print this page, the columns of a listing, and the exit statuses", original=True, group="Others"),
)  # fmt: skip

#: Words for actions; at most one may be given.
VERBS = ("interrupt", "kill", "reset", "gone", "reserve", "unreserve")
#: Words of the original that are refused: the reason, and what to do instead.
REFUSED = {
    "nicekill": (
        "launches with -nice end by themselves if a waiting launch needs their processors",
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
SELECTORS = ("all", "list", "job", "pbsjob", "mine", "user")

EXTRA = """
The columns of a row:
      12 ( n3 )                                            the processor is free
      12 ( n3 )  301  login1/4711  7 ada  39:36:54         launcher, login processor/pid, rank, user, time since GO
      12 ( n3 )  301  login1/4711  7 ada  39:36:54  PBS # 4242          … in a partition of batch job 4242.pbs
      12 ( n3 )  301  login1/4711  - ada  pending allocation            … its processes have not started yet
      12 ( n3 )  down                                      or drained, suspect, reserved, in partition 5

The words that -parse prints, separated by single blanks (- stands for no value):
  processor node state mode launcher login pid rank user seconds partition batch-job

Rights: users act on their own launches; administrators act on all launches, nodes and reservations (a CPA decides).
Exit status: 0 for a listing, even an empty one, and for help; 1 if an action selected nothing or was not confirmed;
125 if an action was refused or failed; 2 for a wrong command line.
"""
