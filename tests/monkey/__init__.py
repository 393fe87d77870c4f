"""A monkey at the console: ``mesh console`` in a real terminal over a real mesh, with random keys, mouse and events.

``python -m tests.monkey --seed 7 --minutes 6`` makes a script of acts from the seed: keys, texts, pastes, the mouse,
sizes of the terminal from 20×5 to 300×100, ^Z and SIGSTOP, a terminal that reads late or is attached elsewhere, jumps
of the clock, and events of the world (launches that end, fail, flood and have odd names, jobs, processes that are
killed, a database that is gone or busy, another machine under the same name). It checks that

* the console never ends by a fault, and shows no traceback,
* it always answers (a heartbeat through its event loop and its queues of messages),
* every cell of the terminal (character, colours, attributes) is as in a fresh paint of the same state. Data and clock
  stand still for the comparison: the event loop is held while both terminals are read.

The end of the output says how often each screen was in front, and which bindings ran. A seed gives the same acts every
time. ``--from N`` leaves out the acts before N, and ``--acts N`` ends after N of them.

| module | subject |
|---|---|
| ``__main__.py`` | the command line |
| ``acts.py`` | the script that a seed gives |
| ``campaign.py`` | plays the script, and checks |
| ``coverage.py`` | which screens and bindings were reached |
| ``world.py`` | the mesh, and what happens to it |
| ``terminal.py`` | tmux: the console's terminal, and another for the fresh paint |
| ``shell.py`` | the shell with job control in that terminal |
| ``watched.py`` | ``mesh console`` with a socket for the heartbeat and the comparison |
| ``program.py`` | the program that the launches run |
"""
