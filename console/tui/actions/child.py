"""Runs one of our commands beside the event loop, and reads its answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from redmesh.answers import VARIABLE, Answered, pipe


async def answered(words: Sequence[str], patience_s: float, env: Mapping[str, str] | None = None) -> Answered:
    """Run a command to its end; ``env`` is its whole environment, or None for ours.

    Raises TimeoutError after ``patience_s``, when the command has been killed.
    """
    reader, writer = pipe()
    source = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    ours = os.fdopen(reader, "rb", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), ours)
    try:
        try:
            child = await asyncio.create_subprocess_exec(
                *words, env={**(os.environ if env is None else env), VARIABLE: str(writer)}, pass_fds=(writer,),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
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
