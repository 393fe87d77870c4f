"""yod's table of options, from which parser, help, docs page, completion and tests are made
(console/cli/options/parser.py)."""

from __future__ import annotations

from console.cli.options.parser import Word

USAGE = "yod [options] program [arguments]"
ABOUT = """Launches a program on the processors of a mesh and is its terminal: input, output, signals, exit status.
A load file in the place of the program starts several programs, one a line (-vhelp says more); so does
`yod -n 1 a : -n 2 b`."""
_OTHER, _OUTPUT, _WHERE, _RANKS, _LOOK = (
    "Running launches", "Input and output", "Which processors", "What the ranks get", "Looking first",
)  # fmt: skip
_FILES, _HOW = "Programs and files that travel", "How the ranks are run"
#: Options for transfers; their module is imported only if one is given.
TRANSFER = frozenset(("bcast", "bcast-libs", "bcast-per", "io", "stage-in", "stage-out"))

WORDS = (
    Word(
        "sz", "int", "how many ranks; without it 1, or as many as -list has room for", "size ntasks np", "n", "N",
        True, _WHERE,
    ),
    Word(
        "list", "text", "processors by number (0..3,8), or all those of nodes by name (node[01-04]);"
        " with -sz N, N free ones of these", "list nodelist",
        "w", "L", True, _WHERE,
    ),
    Word(
        "service", "flag", "on service processors, which are in no pool; also in a line of a load file", group=_WHERE,
    ),
    Word("exclude", "text", "not these processors or nodes", letter="x", metavar="L", group=_WHERE),
    Word(
        "hostfile", "text", "nodes from a file: a line `node`, `node slots=N` or `node:N`, N ranks there at most",
        "hostfile machinefile", metavar="FILE", group=_WHERE,
    ),
    Word("nodes", "int", "spread the ranks evenly over exactly so many nodes", metavar="N", group=_WHERE),
    Word(
        "tasks-per-node", "int", "ranks on each node: all of them with -nodes, at most so many without",
        "tasks-per-node ntasks-per-node ppn", metavar="N", group=_WHERE,
    ),
    Word("cpus-per-task", "int", "processors for each rank, all on one node", letter="c", metavar="N", group=_WHERE),
    Word(
        "gpus-per-task", "int", "GPUs for each rank, on its node, shared with nobody (CUDA_VISIBLE_DEVICES and its"
        " twins name them)", metavar="N", group=_WHERE,
    ),
    Word(
        "distribution", "block|cyclic", "ranks fill node after node, or go round the nodes", metavar="block|cyclic",
        group=_WHERE,
    ),
    Word(
        "placement", "text", "how processors are chosen: hilbert, close_fit, rack_packed … (docs/placement.md)",
        metavar="NAME", group=_WHERE,
    ),
    Word(
        "shape", "text", "a block of processors that touch, in x, y and z: 4x4x2; without -sz as many as it holds",
        metavar="XxYxZ", group=_WHERE,
    ),
    Word("overcommit", "flag", "more ranks than processors is fine", group=_WHERE),
    Word("load", "text", "this file is a load file: several programs, one a line; without the word a text file that is"
         " not executable counts as one if all of it can be read so", metavar="FILE", group=_WHERE),
    Word("immediate", "flag", "never wait for processors; the default", letter="I", group=_WHERE),
    Word("wait-for-nodes", "seconds", "wait so long for processors that are not free", metavar="S", group=_WHERE),
    Word("batch", "flag", "no questions, no status lines; a bad exit ends the whole job", original=True),
    Word("interactive", "flag", "the opposite of -batch; the default", original=True),
    Word(
        "kill", "flag", "a rank that exits badly ends the whole job", "kill kill-on-bad-exit", "K", "", True,
    ),
    Word(
        "time", "text", "end the job after so long: minutes, M:S, H:M:S, D-H:M:S, or a number with s, m, h or d"
        " (status 124)", metavar="LIMIT",
    ),
    Word("wait", "seconds", "end the job so long after its first rank has ended", letter="W", metavar="S"),
    Word("bt", "flag", "the stack of every rank that dies of a fault, behind its completion line", "backtrace",
         original=True, group=_HOW),
    Word("g", "flag", "the same as -bt", "stack", original=True, group=_HOW),
    Word("alloc", "flag", "hold every rank at its first instruction, say where it is, and wait for Enter; not with"
         " -batch", "hold", original=True, group=_HOW),
    Word("attach", "flag", "the same as -alloc: debuggers attach meanwhile (--attach is another word)",
         "hold-to-attach", original=True, group=_HOW),
    Word("proctable", "text", "write host, program and process of every rank to this file, for debuggers (MPIR, as"
         " JSON)", "mpir-file", metavar="FILE", group=_HOW),
    Word("release-after", "seconds", "let held ranks run so long after GO, also without Enter", metavar="S",
         group=_HOW),
    Word("sleep", "text", "sleep 60 s after-fork, before-exec, after-exec or before-go, or 1, 2, 3, 4"
         " (before-go:5 sleeps 5 s)",
         metavar="WHERE", original=True, group=_HOW),
    Word("strace", "text", "run rank 0, or -stracenodes, under strace; it writes a file LAUNCHER.rank-N.strace for"
         " each into DIR",
         metavar="DIR", original=True, group=_HOW),
    Word("straceoptions", "text", "options for strace, in one word: '-f -e trace=file'", metavar="S", original=True,
         group=_HOW),
    Word("stracenodes", "text", "these ranks under strace: 0,4..7, or all", metavar="RANKS", original=True, group=_HOW),
    Word("Log", "flag", "every step of the load goes to the logs of the nodes' PCTs", "log-steps", original=True,
         group=_HOW),
    Word("nice", "flag", "low priority; ended, with notice, when a launch that waits needs the processors",
         original=True, group=_HOW),
    Word("pty", "flag", "rank 0 gets a terminal, which is ours: ^C and all keys go to it", group=_HOW),
    Word("pty-rank", "int", "this rank instead of rank 0", metavar="RANK", group=_HOW),
    Word("cpu-bind", "text", "bind ranks to cores: none (the default), core (its processors' own), map:0,2,4 (a list"
         " that the ranks of a node go round)", metavar="HOW", group=_HOW),
    Word(
        "export", "text", "variables of the environment: ALL (the default), NONE, NAME, NAME=VALUE, with commas"
        " between", metavar="RULES", group=_RANKS,
    ),
    Word(
        "mpi", "auto|pmi1|pmi2|pmix|none", "how the ranks of an MPI program find each other: PMIx where it is linked"
        " against Open MPI, else PMI-1 or PMI-2 as it asks (auto; default), one of them alone, or not at all",
        metavar="auto|pmi1|pmi2|pmix|none", group=_RANKS,
    ),
    Word("mpi-strict", "flag", "a rank that exits with 0 without MPI_Finalize ends the job with status 1, also when all"
         " others do the same", group=_RANKS),
    Word(
        "rendezvous", "auto|none", "RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT … as PyTorch wants them"
        " (auto; default), or not", metavar="auto|none", group=_RANKS,
    ),
    Word("chdir", "text", "their working directory", metavar="DIR", group=_RANKS),
    Word("umask", "text", "their file mode creation mask, in octal", metavar="MASK", group=_RANKS),
    Word("label", "flag", "put the rank in front of every line", group=_OUTPUT),
    Word(
        "input", "text", "who reads standard input: shared (which rank reads first; default), all, none, or a rank",
        metavar="WHO", group=_OUTPUT,
    ),
    Word(
        "stdin", "text", "standard input from a file: one for all, or with {rank} {node} {local} {launcher} in its name"
        " one for each, opened on the rank's node", metavar="FILE", group=_OUTPUT,
    ),
    Word(
        "output", "text", "standard output to files; {rank} {node} {local} {launcher} in the name, as in out.{rank:04}",
        letter="o",
        metavar="FILE", group=_OUTPUT,
    ),
    Word("error", "text", "standard error to files, likewise", letter="e", metavar="FILE", group=_OUTPUT),
    Word("gather", "flag", "tell standard output at the end, once for all ranks that wrote the same", group=_OUTPUT),
    Word(
        "file", "text", "how every rank ended is appended to this file, a line for each, behind the command"
        " line", metavar="FILE", original=True,
        group=_OUTPUT,
    ),
    Word("json", "flag", "print what happens as JSON, an object a line, output as base64", group=_OUTPUT),
    Word("quiet", "flag", "say nothing but errors", original=True, group=_OUTPUT),
    Word("verbose", "flag", "tell how every rank ended, also when all went well", group=_OUTPUT),
    Word("D", "flag", "tell every step of the launch and when it was taken", "steps", "", "", True, _LOOK),
    Word(
        "d", "texts", "tell these steps alone: io iomore load loadmore alloc hetero pbs environ progress failure debug"
        " bebopd comm phase1 phase2; may be given again", "debug", metavar="TYPE", original=True, group=_LOOK,
    ),
    Word("timing", "flag", "tell the seconds of each phase at the end", original=True, group=_LOOK),
    Word(
        "N", "flag", "the pieces of a line go on at once; else they wait 20 ms for its end", "unbuffered",
        original=True, group=_OUTPUT,
    ),
    Word("NOBUF", "flag", "the same", "nobuf", original=True, group=_OUTPUT),
    Word(
        "show", "flag", "print the version and how the program would be loaded; asks nobody, starts nothing",
        original=True, group=_LOOK,
    ),
    Word(
        "dry-run", "flag", "print where the ranks would go, as a CPA decides it; nothing is taken or started",
        group=_LOOK,
    ),
    Word("detach", "flag", "let it run without this terminal; prints the launcher's id", group=_OTHER),
    Word(
        "spool", "block|drop", "when what a detached launch wrote has filled its spool: the job waits (block; default),"
        " or the oldest is dropped", metavar="block|drop", group=_OTHER,
    ),
    Word("spool-limit", "text", "what the spool holds at most (1g)", metavar="BYTES", group=_OTHER),
    Word(
        "reattach", "int", "follow a launch's output, from its beginning if it was detached; ^C leaves it running",
        "attach", metavar="ID", group=_OTHER,
    ),
    Word(
        "feed", "int", "send standard input to the ranks of a launch that began with -detach and -input", metavar="ID",
        group=_OTHER,
    ),
    Word("release", "int", "let the ranks of a held launch run", metavar="ID", group=_OTHER),
    Word(
        "signal", "text", "send a signal to the ranks of the launch named next, or to some: -signal TERM 7 0-3;"
        " before a program, SIG@T: a signal to the ranks T seconds before the limit of -time", metavar="SIG[@T]",
        group=_OTHER,
    ),
    Word(
        "nid", "text", "ask this CPA: its name (cpa-1), or the path of its socket, which may be another mesh's", "cpa",
        metavar="ADDRESS", original=True, group="Others",
    ),
    Word("pid", "int", "ask the CPA that is this process", "cpa-pid", metavar="PID", original=True, group="Others"),
    Word(
        "bcast", "auto|always|never", "how programs get to the nodes: in place where the same file is there, else by"
        " their RAM disk (auto; default); always by it; never", metavar="auto|always|never", group=_FILES,
    ),
    Word("bcast-libs", "flag", "shared libraries that are not under /usr or /lib travel too", group=_FILES),
    Word(
        "bcast-per", "host|node", "one copy for all PCTs of a machine (default), or one for each", metavar="host|node",
        group=_FILES,
    ),
    Word(
        "io", "texts", "ranks may open files below DIR here, by their names; DIR:ro: only read; may be given again",
        metavar="DIR", group=_FILES,
    ),
    Word(
        "stage-in", "texts", "copy SRC here to DST on the nodes before the ranks begin; without DST into $YOD_STAGE."
        " {rank} {node} {local} {launcher} in names; may be given again", metavar="SRC[:DST]", group=_FILES,
    ),
    Word(
        "stage-out", "texts", "copy SRC on the nodes to DST here when the ranks have ended; may be given again",
        metavar="SRC:DST", group=_FILES,
    ),
    Word(
        "state", "flag", "keep what happens in a state object, a file that `mesh job` and sqlite3 read; ranks write to"
        " it with yodstate", group=_LOOK,
    ),
    Word("keep", "flag", "never delete that state object", group=_LOOK),
    Word("purge", "flag", "delete it as soon as the launch has ended well", group=_LOOK),
    Word(
        "worker-of", "text", "the ranks are workers of a job of mesh submit, whose owner listens at this socket",
        metavar="PATH", group="Others",
    ),
    Word("config", "text", "the configuration file to read", metavar="FILE", group="Others"),
    Word("manager", "text", "the batch system whose job is used, or none", metavar="NAME", group="Others"),
    Word("parent", "daemon|rank", "in a batch system's job: who starts the ranks, our agents (daemon; default) or the"
         " batch system itself, one by one (rank)", metavar="daemon|rank", group=_HOW),
    Word("fanout", "int", "children of a node in the tree of the launch", metavar="K", group="Others"),
    Word("version", "flag", "print the version", group="Others"),
    Word("help", "flag", "print this", original=True, group="Others"),
    Word("vhelp", "flag", "print this, and what yod takes from its environment", "", "", "", True, "Others"),
)  # fmt: skip

#: Rare options; their module is imported only if one is given (nodes_and_ranks.py).
EXTRAS = frozenset(
    [
        "exclude",
        "hostfile",
        "nodes",
        "tasks-per-node",
        "gpus-per-task",
        "immediate",
        "export",
        "chdir",
        "umask",
        "N",
        "NOBUF",
        "nid",
        "pid",
        "placement",
        "shape",
        "service",
        "mpi",
        "mpi-strict",
        "rendezvous",
        "state",
        "keep",
        "purge",
        "worker-of",
    ]
)
#: Run options (console/launch/options/run.py).
RUN = frozenset(
    ("bt", "g", "alloc", "attach", "release-after", "sleep", "strace", "straceoptions", "stracenodes", "Log", "nice")
    + ("pty", "pty-rank", "cpu-bind", "proctable", "parent")
)
#: Options for the time while and after the processes run (console/launch/options/output.py); -signal only as SIG@T.
OUTPUT = frozenset(
    ("time", "wait", "stdin", "output", "error", "gather", "file", "D", "d", "timing", "signal", "spool", "spool-limit")
)
