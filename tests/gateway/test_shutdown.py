"""A graceful stop has a hard time limit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import signal, sys, threading, time, anyio
from gateway.serving.shutdown import ShutdownSignal

def stop_soon():
    time.sleep(0.5)  # until the loop waits
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

async def main():
    with ShutdownSignal(bound_s=float(sys.argv[2])) as stop:
        print("ready", flush=True)
        if sys.argv[1] == "waits":
            await stop.wait()
        elif sys.argv[1] == "asks":
            stop.request()
            await stop.wait()
        elif sys.argv[1] == "elsewhere":
            threading.Thread(target=stop_soon).start()
            await stop.wait()
        elif sys.argv[1] == "ignores":
            with anyio.CancelScope(shield=True):
                await anyio.sleep(60)
        else:
            while True:
                time.sleep(1)
    print("ended", flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize(
    ("how", "signals", "code", "ended"),
    [
        ("waits", [signal.SIGTERM], 0, True),
        ("waits", [signal.SIGINT], 0, True),
        ("waits", [signal.SIGHUP], 0, True),
        ("asks", [], 0, True),
        # Another thread gets the signal, so it does not interrupt the event loop's wait.
        ("elsewhere", [], 0, True),
        ("ignores", [signal.SIGTERM], 0, False),
        ("ignores", [signal.SIGTERM, signal.SIGTERM], 0, False),
        ("blocks", [signal.SIGTERM], 0, False),
        ("blocks", [signal.SIGINT, signal.SIGINT], 130, False),
    ],
)
def test_a_stop_ends_hanging_requests(
    how: str, signals: list[signal.Signals], code: int, *, ended: bool
) -> None:
    # The other cases end before the limit, which even a busy machine must not reach.
    bound_s = "0.5" if (code, ended) == (0, False) else "60"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how, bound_s], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout as out:
        assert out.readline() == "ready\n"
        for number in signals[:1]:
            process.send_signal(number)
        for number in signals[1:]:
            # A second signal that arrives with the first is merged with it.
            while process.poll() is None:
                try:
                    process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    process.send_signal(number)
        assert process.wait(timeout=30) == code
        assert ("ended" in out.read()) == ended


@pytest.mark.parametrize("nohup", [True, False])
def test_a_terminal_that_closes_is_ignored_only_below_nohup(*, nohup: bool) -> None:
    command = [*(["nohup"] if nohup else []), sys.executable, "-c", PROGRAM, "waits", "60"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as out:
        assert out.readline() == "ready\n"
        status = Path(f"/proc/{process.pid}/status").read_text("ascii")
        (ignored,) = (int(line[7:], 16) for line in status.splitlines() if line[:7] == "SigIgn:")
        assert bool(ignored & 1 << signal.SIGHUP - 1) == nohup
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
