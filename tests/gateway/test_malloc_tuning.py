"""The settings of glibc's allocator, in a process of their own: they cannot be taken back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNT_HEAPS = """
import ctypes, os, sys, threading
from gateway.serving.malloc_tuning import limit_arenas, release_unused
libc = ctypes.CDLL(None)
if not hasattr(libc, "mallopt"):
    sys.exit("no glibc")
limited = limit_arenas(os.environ)
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
