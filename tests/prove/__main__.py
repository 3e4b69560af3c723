"""The command: `python -m tests.prove --minutes 3`; `parley prove` runs it."""

import argparse
import logging
import random
import signal
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import anyio

from tests.prove.plan import BURST_SHARE
from tests.prove.report import broken_histories, write_report
from tests.prove.run import (
    CHAOS_SHARE,
    MESSAGES_PER_S,
    PEOPLE,
    SECONDS_PER_FAULT,
    Options,
    Proof,
    ServerMissing,
    run_proof,
)

MAX_SEED = 1_000_000


def main() -> int:
    """Run a proof, print its summary and write its report. Return 1 if a promise was broken."""
    arguments = _parser().parse_args()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # Connections break on purpose.
    # The service must not outlive the proof, so end as with Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job ignores it.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    minutes = arguments.hours * 60 if arguments.hours else arguments.minutes
    seed = arguments.seed if arguments.seed is not None else random.randrange(MAX_SEED)  # noqa: S311
    rate = arguments.rate or MESSAGES_PER_S
    messages = arguments.messages or int(minutes * 60 * CHAOS_SHARE * rate)
    options = Options(
        seed=seed,
        minutes=minutes,
        messages=messages,
        people=arguments.people or max(PEOPLE, round(PEOPLE * rate / MESSAGES_PER_S)),
        rate=arguments.rate,
        burst_share=arguments.bursts,
        fault_every_s=arguments.fault_every,
        nodes=arguments.nodes,
        forks=arguments.fork,
    )
    sys.stdout.write(f"Seed {seed}. {messages} messages in {minutes:g} minutes.\n")
    sys.stdout.flush()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="parley-prove-"))
    try:
        proof = anyio.run(partial(run_proof, options, folder))
    except ServerMissing as reason:
        sys.stderr.write(f"parley prove: {reason}\n")
        return 2
    report = Path(arguments.report)
    write_report(proof, report)
    sys.stdout.write(summary(proof, report))
    return 1 if proof.verdict.violations else 0


def summary(proof: Proof, report: Path) -> str:
    """Return the totals and violations of a proof."""
    outcomes = Counter(str(one.outcome) for one in proof.verdict.histories if one.outcome)
    lines = [f"{count:7d} {name}" for name, count in proof.counts.items()]
    lines += ["Messages:"]
    lines += [f"{count:7d} {outcome}" for outcome, count in outcomes.most_common()]
    lines += [f"Left out: {kind} ({reason})" for kind, reason in proof.left_out.items()]
    found = proof.verdict.violations
    lines += [
        f"{len(found)} violations" if found else "No violations: every message is accounted for."
    ]
    lines += [f"  {one.kind}: {one.message or '-'}: {one.text}" for one in found[:50]]
    lines += broken_histories(proof)
    lines += [
        f"Quiet after {proof.quiet_s:.0f} s. {proof.seconds:.0f} s in all.",
        f"Report: {report}",
    ]
    lines += [f"Run it again: {proof.options.command}"]
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parley prove")
    parser.add_argument(
        "--seed", type=int, help="number that determines the plan (default: random)"
    )
    parser.add_argument("--minutes", type=float, default=3.0, help="length (default: 3)")
    parser.add_argument("--hours", type=float, default=0.0, help="length, instead of --minutes")
    parser.add_argument("--messages", type=int, default=0, help="number of messages")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="messages a second, instead of --messages"
    )
    parser.add_argument(
        "--people", type=int, default=0, help="people who chat privately with each bot"
    )
    parser.add_argument(
        "--bursts",
        type=float,
        default=BURST_SHARE,
        metavar="SHARE",
        help="share of messages that follow the previous one within a second",
    )
    parser.add_argument(
        "--fault-every",
        type=float,
        default=SECONDS_PER_FAULT,
        metavar="SECONDS",
        help="average time between faults",
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=1,
        help="processes of the service; several share a PostgreSQL database (default: 1, with SQLite)",
    )
    parser.add_argument(
        "--fork",
        action="store_true",
        help="start the service with everything imported: more messages for the same CPU time",
    )
    parser.add_argument(
        "--report", default="prove-report.html", metavar="FILE", help="HTML page to write"
    )
    parser.add_argument("--folder", default="", help="empty folder for the service's data and log")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
