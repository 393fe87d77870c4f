"""yod's table of options, from which parser, help, docs page, completion and tests are made
(console/cli/options/parser.py)."""

from __future__ import annotations

from console.cli.options.parser import Word

USAGE = "yod [options] program [arguments]"
ABOUT = """Launches a program on the processors of a mesh, and connects this terminal to it: input, output, signals and
exit status. A load file instead of the program starts several programs, one on each line (see -vhelp); so does
`yod -n 1 a : -n 2 b`."""
_OTHER, _OUTPUT, _WHERE, _RANKS, _LOOK = (
    "Running launches", "Input and output", "Which processors", "Environment of the ranks", "Diagnosis",
)  # fmt: skip
_FILES, _HOW, _ORIGINAL = "Transfers", "How the ranks run", "Words of the original"
#: Options for transfers; their module is imported only if one is given.
TRANSFER = frozenset(("bcast", "bcast-libs", "bcast-per", "io", "stage-in", "stage-out"))

WORDS = (
    Word(
        "sz", "int", "the number of ranks (default: 1, or all processors of -list)", "size ntasks np", "n", "N",
        True, _WHERE,
    ),
    Word(
        "list", "text", "the processors, by number (0..3,8) or by node (node[01-04]); with -sz N, any N free ones of "
        "them", "list nodelist host hosts", "w", "L", True, _WHERE,
    ),
    Word(
        "service", "flag",
        "use service processors, which no pool contains; also allowed in a line of a load file", group=_WHERE,
    ),
    Word("het-group", "text", "the nodes of these components of a heterogeneous job of Slurm: for example 0,2; with "
        "-sz N, N of their processors", metavar="N", group=_WHERE),
    Word("exclude", "text", "do not use these processors or nodes", letter="x", metavar="L", group=_WHERE),
    Word(
        "hostfile", "text", "read the nodes from a file with lines `node`, `node slots=N` or `node:N` (at most N ranks "
        "there)", "hostfile machinefile", metavar="FILE", group=_WHERE,
    ),
    Word("nodes", "int", "spread the ranks evenly over exactly N nodes", metavar="N", group=_WHERE),
    Word(
        "tasks-per-node", "int", "with -nodes: exactly N ranks on each node; without it: at most N",
        "tasks-per-node ntasks-per-node ppn", metavar="N", group=_WHERE,
    ),
    Word("cpus-per-task", "int",
        "the number of processors for each rank, all on one node", letter="c", metavar="N", group=_WHERE),
    Word(
        "gpus-per-task", "int",
        "the number of GPUs for each rank, on its node, for its use alone (CUDA_VISIBLE_DEVICES, "
        "ROCR_VISIBLE_DEVICES … name them)", metavar="N", group=_WHERE,
    ),
    Word(
        "distribution", "block|cyclic",
        "block: fill one node after the other; cyclic: place ranks round robin", metavar="block|cyclic", group=_WHERE,
    ),
    Word(
        "placement", "text", "the placement algorithm: hilbert, close_fit, rack_packed … (docs/placement.md)",
        metavar="NAME", group=_WHERE,
    ),
    Word(
        "shape", "text", "allocate a block of adjacent processors, in x, y and z, for example 4x4x2 (default of -sz: "
        "all of it)", metavar="XxYxZ", group=_WHERE,
    ),
    Word("overcommit", "flag", "allow more ranks than processors", group=_WHERE),
    Word("load", "text", "read FILE as a load file: several programs, one on each line. Without this option, a text "
        "file that is not executable is read as a load file if every line can be read so",
        metavar="FILE", group=_WHERE),
    Word("immediate", "flag", "do not wait for processors (default)", letter="I", group=_WHERE),
    Word("wait-for-nodes", "seconds",
        "wait up to S seconds for processors that are not free", metavar="S", group=_WHERE),
    Word("batch", "flag", "ask nothing and print no status lines; a bad exit of a rank ends the launch", original=True),
    Word(
        "kill", "flag", "end the launch if a rank exits with a bad status", "kill kill-on-bad-exit", "K", "", True,
    ),
    Word(
        "time", "text", "end the launch after this time: minutes, M:S, H:M:S, D-H:M:S, or a number with s, m, h or d "
        "(status 124)", metavar="LIMIT",
    ),
    Word("wait", "seconds", "end the launch S seconds after its first rank has ended", letter="W", metavar="S"),
    Word("bt", "flag", "print the stack of every rank that a fault killed, after its completion line", "backtrace",
         original=True, group=_HOW),
    Word("alloc", "flag",
        "hold every rank at its first instruction, print where the ranks are, and wait for Enter; not "
        "with -batch", "hold", original=True, group=_HOW),
    Word("proctable", "text", "write host, program and process of every rank to FILE, for debuggers (MPIR, as JSON)",
        "mpir-file", metavar="FILE", group=_HOW),
    Word("release-after", "seconds", "release held ranks S seconds after GO, even without Enter", metavar="S",
         group=_HOW),
    Word("strace", "text", "run rank 0, or the ranks of -stracenodes, under strace; each writes a file "
        "LAUNCHER.rank-N.strace in DIR", metavar="DIR", original=True, group=_HOW),
    Word("straceoptions", "options",
        "options for strace, as one word, for example '-f -e trace=file'", metavar="S", original=True, group=_HOW),
    Word("stracenodes", "text",
        "the ranks to run under strace: for example 0,4..7, or all", metavar="RANKS", original=True, group=_HOW),
    Word("nice", "flag", "run at low priority; the launch is ended, with notice, when a waiting launch needs its "
        "processors", original=True, group=_HOW),
    Word("pty", "flag", "give rank 0 a pseudo-terminal and connect this terminal to it: ^C and all keys go to the "
        "rank", group=_HOW),
    Word("pty-rank", "int", "give the pseudo-terminal to this rank instead of rank 0", metavar="RANK", group=_HOW),
    Word("cpu-bind", "text",
        "bind ranks to cores: none (default), core (the cores of their processors), or map:0,2,4 (a "
        "list of cores that the ranks of a node use round robin)", metavar="HOW", group=_HOW),
    Word(
        "export", "text", "the environment variables of the ranks: ALL (default), NONE, NAME, NAME=VALUE, separated by "
        "commas", metavar="RULES", group=_RANKS,
    ),
    Word(
        "mpi", "auto|pmi1|pmi2|pmix|none",
        "the process manager interface of an MPI program: auto (default; PMIx if it is linked against "
        "Open MPI, otherwise PMI-1 or PMI-2, as the program asks), one interface alone, or none",
        metavar="auto|pmi1|pmi2|pmix|none", group=_RANKS,
    ),
    Word("mpi-strict", "flag",
        "end the launch with status 1 if a rank exits with 0 without MPI_Finalize, even if all ranks "
        "do", group=_RANKS),
    Word(
        "rendezvous", "auto|none",
        "auto (default): set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT …, which PyTorch "
        "reads; none: do not set them", metavar="auto|none", group=_RANKS,
    ),
    Word("chdir", "text", "the working directory of the ranks", metavar="DIR", group=_RANKS),
    Word("umask", "text", "the file mode creation mask of the ranks, in octal", metavar="MASK", group=_RANKS),
    Word("label", "flag", "print the rank before every line of output", group=_OUTPUT),
    Word(
        "input", "text", "the ranks that read standard input: shared (the first rank that reads; default), all, none, "
        "or one rank", metavar="WHO", group=_OUTPUT,
    ),
    Word(
        "stdin", "text", "read standard input from a file; with {rank} {node} {local} {launcher} in its name, each "
        "rank reads a file of its own, on its node", metavar="FILE", group=_OUTPUT,
    ),
    Word(
        "output", "text", "write standard output to files; {rank} {node} {local} {launcher} may stand in the name, as "
        "in out.{rank:04}",
        letter="o",
        metavar="FILE", group=_OUTPUT,
    ),
    Word("error", "text",
        "write standard error to files; the name as for -output", letter="e", metavar="FILE", group=_OUTPUT),
    Word("gather", "flag", "print standard output at the end, once for all ranks that wrote the same", group=_OUTPUT),
    Word(
        "file", "text",
        "append the command line and a line on the end of every rank to FILE", metavar="FILE", original=True,
        group=_OUTPUT,
    ),
    Word("json", "flag", "print events as JSON, one object on each line; output of ranks is in base64", group=_OUTPUT),
    Word("quiet", "flag", "print only errors", original=True, group=_OUTPUT),
    Word("verbose", "flag", "print how every rank ended, even if all ended well", group=_OUTPUT),
    Word("D", "flag", "print every step of the launch and its time", "steps", "", "", True, _LOOK),
    Word("timing", "flag", "print the seconds of each phase at the end", original=True, group=_LOOK),
    Word(
        "N", "flag", "pass on parts of lines at once (default: wait up to 20 ms for the rest of a line)", "unbuffered",
        original=True, group=_OUTPUT,
    ),
    Word(
        "show", "flag", "print the version and how the program would be loaded; ask no daemon and start nothing",
        original=True, group=_LOOK,
    ),
    Word(
        "dry-run", "flag", "print where a CPA would place the ranks; allocate and start nothing", group=_LOOK,
    ),
    Word("detach", "flag", "let the launch run without this terminal; print its launcher id", group=_OTHER),
    Word(
        "spool", "block|drop",
        "if the output of a detached launch has filled its spool: block (let the ranks wait; default) "
        "or drop (delete the oldest output)", metavar="block|drop", group=_OTHER,
    ),
    Word("spool-limit", "text", "the size of the spool (default: 1g)", metavar="BYTES", group=_OTHER),
    Word(
        "reattach", "int",
        "follow the output of a launch, from the beginning if the launch is detached; ^C does not end "
        "the launch", "attach", metavar="ID", group=_OTHER,
    ),
    Word(
        "feed", "int",
        "send standard input to the ranks of a launch that was started with -detach and -input", metavar="ID",
        group=_OTHER,
    ),
    Word("release", "int", "release the ranks of a held launch", metavar="ID", group=_OTHER),
    Word(
        "signal", "text", "send a signal to the ranks of a launch, or to some of them: -signal TERM 7 0-3. With a "
        "program, SIG@T: send the signal T seconds before the limit of -time", metavar="SIG[@T]", group=_OTHER,
    ),
    Word(
        "bcast", "auto|always|never",
        "how programs get to the nodes: auto (default; use the same file on the node if there is one, "
        "otherwise copy to the RAM disk of the node), always (copy) or never (do not copy)",
        metavar="auto|always|never", group=_FILES,
    ),
    Word("bcast-libs", "flag", "also copy shared libraries that are not under /usr or /lib", group=_FILES),
    Word(
        "bcast-per", "host|node",
        "host (default): one copy for all PCTs of a host; node: one copy for each PCT", metavar="host|node",
        group=_FILES,
    ),
    Word(
        "io", "texts", "let ranks open files below DIR on this machine, under the same names; DIR:ro allows only "
        "reading; may be repeated", metavar="DIR", group=_FILES,
    ),
    Word(
        "stage-in", "texts", "copy SRC on this machine to DST on the nodes before the ranks start (default of DST: "
        "$YOD_STAGE); {rank} {node} {local} {launcher} may stand in the names; may be repeated",
        metavar="SRC[:DST]", group=_FILES,
    ),
    Word(
        "stage-out", "texts",
        "copy SRC on the nodes to DST on this machine after the ranks have ended; may be repeated",
        metavar="SRC:DST", group=_FILES,
    ),
    Word(
        "state", "flag", "record events, exits and output in a state object, a file that `mesh job` and sqlite3 read; "
        "ranks write to it with yodstate", group=_LOOK,
    ),
    Word("keep", "flag", "never delete the state object", group=_LOOK),
    Word("purge", "flag", "delete the state object as soon as the launch has ended well", group=_LOOK),
    Word(
        "worker-of", "text", "start the ranks as workers of a job of mesh submit whose owner listens on this socket",
        metavar="PATH", group="Others",
    ),
    Word(
        "worker-holds", "flag", "with -worker-of: the job gives no processors back to requests that wait",
        group="Others",
    ),
    Word(
        "worker-grows", "int", "with -worker-of: the job has processors, and could use that many more", metavar="N",
        group="Others",
    ),
    Word("config", "text", "the configuration file to read", metavar="FILE", group="Others"),
    Word("manager", "text", "the batch system whose job is used, or none", metavar="NAME", group="Others"),
    Word("parent", "daemon|rank",
        "in a job of a batch system, the parent of the ranks: daemon (the agents of Redmesh; default) or rank "
        "(the batch system starts every rank)", metavar="daemon|rank", group=_HOW),
    Word("fanout", "int", "the number of children of a node in the tree of the launch", metavar="K", group="Others"),
    Word("version", "flag", "print the version", group="Others"),
    Word("help", "flag", "print the options that people use", original=True, group="Others"),
    Word("help-all", "flag", "print every option", group="Others"),
    Word("vhelp", "flag", "print every option, and the environment variables that yod reads", original=True,
         group="Others"),
    Word("interactive", "flag", "the opposite of -batch (default)", original=True, group=_ORIGINAL),
    Word("g", "flag", "the same as -bt", "stack", original=True, group=_ORIGINAL),
    Word("attach", "flag", "the same as -alloc, so that debuggers can attach to the held ranks (--attach is another "
        "option)", "hold-to-attach", original=True, group=_ORIGINAL),
    Word("sleep", "text",
        "sleep 60 s at a step of the load: after-fork, before-exec, after-exec or before-go, or 1, 2, "
        "3, 4 (before-go:5 sleeps 5 s)", metavar="WHERE", original=True, group=_ORIGINAL),
    Word("Log", "flag", "write every step of the load to the logs of the nodes' PCTs", "log-steps", original=True,
         group=_ORIGINAL),
    Word(
        "d", "texts", "print only these steps: io iomore load loadmore alloc hetero pbs environ progress failure "
        "debug bebopd comm phase1 phase2; may be repeated", "debug", metavar="TYPE", original=True, group=_ORIGINAL,
    ),
    Word("NOBUF", "flag", "the same as -N", "nobuf", original=True, group=_ORIGINAL),
    Word(
        "nid", "text", "ask this CPA: its name (cpa-1), or the path of its socket, even of another mesh", "cpa",
        metavar="ADDRESS", original=True, group=_ORIGINAL,
    ),
    Word("pid", "int", "ask the CPA that has this process id", "cpa-pid", metavar="PID", original=True,
         group=_ORIGINAL),
)  # fmt: skip

#: The options of ``yod --help``.
FEW = (
    "sz", "list", "exclude", "hostfile", "nodes", "tasks-per-node", "cpus-per-task", "time", "label", "output", "input",
    "export", "pty", "detach", "reattach",
)  # fmt: skip
#: What stands before and after them.
EXAMPLES = """  yod -n 4 ./a.out                      four ranks, on this machine or on the mesh that is up
  yod -n 64 -w node[01-16] ./heat 0.1   64 ranks on these nodes"""
MORE = "yod --help-all prints every option, yod -vhelp also load files and environment variables; see mesh docs, too."

#: Rare options; their module is imported only if one is given (nodes_and_ranks.py).
EXTRAS = frozenset(
    [
        "exclude",
        "het-group",
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
        "worker-holds",
        "worker-grows",
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
