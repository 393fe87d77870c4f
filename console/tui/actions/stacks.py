"""What can be done with the merged stacks of a launch."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("stacks.take", "s", "Again", "take the stacks again", "take", "mesh stacks {launcher}", footer=True),
    Action("stacks.period", "e", "Every", "again every 2, 5 or 15 seconds, or no longer", "period", footer=True),
    Action("stacks.compare", "D", "Difference", "what changed since the time before: + came, − left", "compare",
           footer=True),
    Action("stacks.whole", "o", "Inside MPI", "show what MPI calls inside itself, or not", "whole",
           "mesh stacks --whole {launcher}", True),
    Action("stacks.kind", "w", "Language", "frames of C and Python, of C alone, of Python alone", "kind",
           "mesh stacks --native {launcher}", True),
    Action("stacks.debug", "d", "Debug", "gdb, pdb, strace … on the first rank of the branch", "debug",
           "mesh debug {launcher} {rank} gdb", True, True),
    Action("stacks.copy", "y", "Copy", "the tree into the clipboard", "copy"),
    Action("stacks.back", "escape", "Back", "back to the run view", "back", footer=True),
)  # fmt: skip

TREE = (
    Action("tree.ranks", "enter", "These ranks", "the ranks of this branch alone, in the run view", "choose",
           footer=True),
    Action("tree.shut", "left,h,minus", "Fold", "fold the branch", "screen.fold(True)"),
    Action("tree.open", "right,l,plus", "Unfold", "unfold it", "screen.fold(False)"),
)  # fmt: skip
