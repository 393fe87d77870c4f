"""What can be done with a recording that is shown (``mesh console --replay FILE``)."""

from console.tui.actions.action import Action

ACTIONS = (
    Action("replay.pause", "p", "Pause", "stand still, or go on", "replay_pause", footer=True),
    Action("replay.faster", "plus", "Faster", "the next speed, up to 1800 times", "replay_speed(1)"),
    Action("replay.slower", "minus", "Slower", "the speed before", "replay_speed(-1)"),
    Action("replay.forth", "right_parenthesis", "Forth", "10 seconds of the screen on, whatever the speed",
           "replay_seek(10)"),
    Action("replay.back", "left_parenthesis", "Back", "10 seconds of the screen back", "replay_seek(-10)"),
    Action("replay.begin", "0", "Begin", "the beginning of the recording", "replay_begin"),
    Action("replay.at", "at", "At", "an instant: 12:30:00, 35%, +60, -5", "replay_at"),
)  # fmt: skip
