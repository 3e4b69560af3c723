"""Reads lines from standard input without a worker thread, which would outlive the program."""

import codecs
import os
import stat
from collections.abc import AsyncIterator

import anyio

READ_BYTES = 65536


async def read_lines(descriptor: int) -> AsyncIterator[str]:
    """Yield lines without line breaks until the input ends. Undecodable bytes become replacement characters."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    rest = ""
    can_wait = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if can_wait:
            can_wait = await _wait_readable(descriptor)
        chunk = os.read(descriptor, READ_BYTES)
        *whole, rest = (rest + decode(chunk, final=not chunk)).split("\n")
        for line in whole:
            yield line.removesuffix("\r")
        if not chunk:
            break
    if rest:
        yield rest


async def _wait_readable(descriptor: int) -> bool:
    """Wait for input. Return False if waiting is not possible because reading never blocks (files, /dev/null)."""
    try:
        await anyio.wait_readable(descriptor)
    except PermissionError:
        return False
    return True
