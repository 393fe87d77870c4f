"""Runs one of our commands beside the event loop, and reads its answer."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from redmesh.answers import VARIABLE, WORDS_VARIABLE, Answered, pipe, words_file
from redmesh.start_command import FIXED_WORDS


async def answered(words: Sequence[str], patience_s: float, env: Mapping[str, str] | None = None) -> Answered:
    """Run a command to its end; ``env`` is its whole environment, or None for ours.

    Raises TimeoutError after ``patience_s``, when the command has been killed. If the task is cancelled, because the
    console ends, the command goes on alone. (A process of asyncio would print a traceback when the loop is closed.)
    """
    answer_reader, answer_writer = pipe()
    errors_reader, errors_writer = pipe()
    async with _stream(answer_reader) as answer, _stream(errors_reader) as errors:
        try:
            child = _begin(words, os.environ if env is None else env, answer_writer, errors_writer)
        finally:
            os.close(answer_writer)
            os.close(errors_writer)
        try:
            async with asyncio.timeout(patience_s):
                out, said = await asyncio.gather(answer.read(), errors.read())
                await _end_of(child)
        except TimeoutError:
            child.kill()
            await _end_of(child)
            raise
    return Answered(child.returncode or 0, os.fsdecode(out), os.fsdecode(said))


@asynccontextmanager
async def _stream(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """What comes through the reading end of a pipe, which is closed at the end."""
    source = asyncio.StreamReader()
    file = os.fdopen(descriptor, "rb", 0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), file)
    try:
        yield source
    finally:
        transport.close()


def _begin(words: Sequence[str], env: Mapping[str, str], answer_to: int, errors_to: int) -> subprocess.Popen[bytes]:
    """Start the command; words that are too many for an argument list go through a file."""

    def start(line: Sequence[str], more: Mapping[str, str], *kept: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            line, env={**env, VARIABLE: str(answer_to), **more}, pass_fds=(answer_to, *kept),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors_to,
        )  # fmt: skip

    try:
        return start(words, {})
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        with words_file(words) as file:
            return start(words[:FIXED_WORDS], {WORDS_VARIABLE: str(file.fileno())}, file.fileno())


async def _end_of(child: subprocess.Popen[bytes]) -> None:
    """Wait until the process has ended; ``returncode`` then has its status."""
    if child.poll() is not None:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    handle = os.pidfd_open(child.pid)  # it has not been waited for, so this is its pid still
    try:
        loop.add_reader(handle, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    child.wait()
