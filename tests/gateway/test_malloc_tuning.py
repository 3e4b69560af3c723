"""The settings of glibc's allocator, in a process of their own: they cannot be taken back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNT_HEAPS = """
import ctypes, os, sys, threading
from gateway.serving.malloc_tuning import tune_allocator, release_unused
libc = ctypes.CDLL(None)
if not hasattr(libc, "mallopt"):
    sys.exit("no glibc")
limited = tune_allocator(os.environ)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(9)

def allocate():
    libc.malloc(200)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
together.wait()
release_unused()
libc.fopen.restype = ctypes.c_void_p
libc.fclose.argtypes = libc.malloc_info.argtypes = None
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
assert libc.malloc_info(0, file) == 0
libc.fclose(file)
print(limited, open(sys.argv[1]).read().count("<heap nr="))
"""


@pytest.mark.parametrize(
    ("variables", "is_limited"),
    [({}, True), ({"MALLOC_ARENA_MAX": "6"}, False)],
)
def test_threads_share_two_heaps_unless_the_environment_says_how_many(
    variables: dict[str, str], tmp_path: Path, *, is_limited: bool
) -> None:
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-P", "-c", COUNT_HEAPS, str(tmp_path / "info.xml")],
        capture_output=True,
        text=True,
        check=False,
        env=clean | variables,
    )
    if done.stderr.strip() == "no glibc":
        pytest.skip("needs glibc")
    assert done.returncode == 0, done.stderr
    limited, heaps = done.stdout.split()
    assert limited == str(is_limited)
    assert int(heaps) == (2 if is_limited else 6)


def number_printed_by(program: str) -> int:
    """Run a program that tunes the allocator, in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=clean,
    )
    if done.stderr.strip() == "no glibc":
        pytest.skip("needs glibc")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


COUNT_FAULTS = """
import os, resource, sys
from gateway.serving.malloc_tuning import tune_allocator
if not tune_allocator(os.environ):
    sys.exit("no glibc")
text = bytes(400_000)

def encode():
    return bytes(memoryview(bytearray(text)))

encode()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    encode()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_large_blocks_are_used_again_without_asking_the_system() -> None:
    pages = number_printed_by(COUNT_FAULTS)
    assert pages < 1_000  # without the settings, each of 100 rounds takes two hundred


RELEASE = """
import os, sys
import anyio
from gateway.serving.malloc_tuning import release_regularly, tune_allocator

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if not tune_allocator(os.environ):
    sys.exit("no glibc")
blocks = [bytearray(b"x" * 100_000) for _ in range(600)]
del blocks[:-1]  # the last one stays, so that the heap does not become shorter
full = resident()

async def main():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(release_regularly, 0.01)
        with anyio.move_on_after(30):
            while resident() > full - 50_000_000:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()

anyio.run(main)
print(full - resident())
"""


def test_what_a_burst_took_is_returned() -> None:
    assert number_printed_by(RELEASE) > 50_000_000
