"""pingd's table of words, and what -xtrahelp says besides."""

from console.cli.options.parser import Word

USAGE = "pingd [options] [LIST]"
ABOUT = """Lists every processor: its number and node, and if it is in use the launcher, login processor/pid, rank,
user and elapsed time; then totals. Or does something to what is selected, and asks before it does."""
_WHICH, _HOW, _VERBS = "Which processors (all of what is given has to hold)", "How they are shown", "What is done"

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
    Word("reserve", "text", "keep the processors for one user", metavar="USER", original=True, group=_VERBS),
    Word("unreserve", "flag", "give them back to all", original=True, group=_VERBS),
    Word("NoInquire", "flag", "do not ask", "no-inquire", original=True, group=_VERBS),
    Word("config", "text", "the configuration file to read", metavar="FILE", group="Others"),
    Word("version", "flag", "print the version", group="Others"),
    Word("help", "flag", "this page", letter="h", original=True, group="Others"),
    Word("xtrahelp", "flag", "this page, and more about what there is to see and to do", original=True, group="Others"),
)  # fmt: skip

#: Words that do something; at most one is given.
VERBS = ("interrupt", "kill", "reset", "gone", "reserve", "unreserve")
#: Words that choose; a verb needs one of them.
SELECTORS = ("all", "list", "job", "pbsjob", "mine")

EXTRA = """
What a row says:
      12 ( n3 )                                            nobody uses it
      12 ( n3 )  301  login1/4711  7 ada  39:36:54         launcher, login processor/pid, rank, user, time since GO
      12 ( n3 )  301  login1/4711  7 ada  39:36:54  PBS # 4242.pbs      … in a partition of that batch job
      12 ( n3 )  301  login1/4711  - ada  pending allocation            … its processes have not begun yet
      12 ( n3 )  down                                      or stale, reserved, in partition 5

What -parse writes, separated by single blanks, - for nothing:
  processor node state mode launcher login pid rank user seconds partition batch-job

Rights: users touch their own launches; all others, and nodes and reservations, are for administrators (a CPA decides).
Status: 0 for a listing, also an empty one, and for help; 1 when a verb selected nothing or was not confirmed;
125 when it was refused or could not be done; 2 for a wrong command line.
"""
