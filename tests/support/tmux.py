"""A private tmux server: send keys to a real terminal and read its screen."""

import itertools
import os
import subprocess
import termios

from tests.support.mesh import PrivateMesh
from tests.support.waiting import PATIENCE_S, wait_until

_numbers = itertools.count()


class Tmux:
    """A private tmux server with one window that runs a command; ended through its socket, never by name."""

    def __init__(self, mesh: PrivateMesh, columns: int = 100, lines: int = 30, command: str = "mesh console") -> None:
        self._mesh = mesh
        self._socket = str(mesh.home / f"tmux-{next(_numbers)}")
        size = ("-x", str(columns), "-y", str(lines))
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, f"{command}; echo ended with $?; exec cat")

    def _tmux(self, *words: str) -> str:
        env = {**self._mesh.env, "TERM": "xterm-256color"}
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words],
            env=env,
            cwd=self._mesh.work,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        """Return the text on the terminal's screen."""
        return self._tmux("capture-pane", "-p")

    def type(self, text: str) -> None:
        """Type ``text`` literally."""
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys, given by tmux's key names."""
        self._tmux("send-keys", *keys)

    def until(self, *words: str) -> str:
        """Wait until all words are on the screen at the same time; return the screen."""

        def shown() -> str:
            screen = self.screen()
            return screen if all(word in screen for word in words) else ""

        return wait_until(shown, lambda: f"{words} on the screen\n{self.screen()}", step_s=0.1)

    def resize(self, columns: int, lines: int) -> None:
        """Resize the terminal."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def pid(self) -> int:
        """The pid of the shell in the window; the command is its child."""
        return int(self._tmux("display", "-p", "#{pane_pid}"))

    @property
    def modes(self) -> str:
        """Modes that a program may have left on (alternate screen, mouse …), and those of the tty driver."""
        flags = "alternate=#{alternate_on} cursor=#{cursor_flag} wrap=#{wrap_flag} mouse=#{mouse_any_flag}"
        told = self._tmux("display", "-p", f"{flags} tty=#{{pane_tty}}").split()
        terminal = os.open(told.pop().removeprefix("tty="), os.O_RDWR | os.O_NOCTTY)
        try:
            local = termios.tcgetattr(terminal)[3]
        finally:
            os.close(terminal)
        names = {"echo": termios.ECHO, "lines": termios.ICANON, "signals": termios.ISIG}
        return " ".join([*told, *(f"{name}={bool(local & flag):d}" for name, flag in names.items())])

    def close(self) -> None:
        """Kill the server and the command."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, timeout=PATIENCE_S)
