"""Runs one of our commands beside the event loop, and reads its answer."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence

from redmesh.answers import VARIABLE, WORDS_VARIABLE, Answered, pipe, words_file
from redmesh.start_command import FIXED_WORDS


async def answered(words: Sequence[str], patience_s: float, env: Mapping[str, str] | None = None) -> Answered:
    """Run a command to its end; ``env`` is its whole environment, or None for ours.

    Raises TimeoutError after ``patience_s``, when the command has been killed.
    """
    reader, writer = pipe()
    source = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    ours = os.fdopen(reader, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), ours)

    async def begin(line: Sequence[str], more: Mapping[str, str], *kept: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *line, env={**(os.environ if env is None else env), VARIABLE: str(writer), **more},
            pass_fds=(writer, *kept), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    try:
        try:
            try:
                child = await begin(words, {})
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise
                with words_file(words) as file:
                    child = await begin(words[:FIXED_WORDS], {WORDS_VARIABLE: str(file.fileno())}, file.fileno())
        finally:
            os.close(writer)
        try:
            async with asyncio.timeout(patience_s):
                out, (_, said) = await asyncio.gather(source.read(), child.communicate())
        except TimeoutError:
            child.kill()
            await child.wait()
            raise
    finally:
        transport.close()
    return Answered(child.returncode or 0, os.fsdecode(out), os.fsdecode(said))
