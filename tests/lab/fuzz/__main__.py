"""Runs all parsers on generated input: `python -m tests.lab.fuzz --count 1000000`.

Prints a table of the outcomes. A failure names the input, so that it can be repeated alone.
"""

import argparse
import logging
import sys
import time
import traceback
import warnings
from random import SystemRandom

from tests.lab.fuzz import content, platforms, webhooks
from tests.lab.fuzz.runner import fuzz

TARGETS = {
    target.name: target for target in (*platforms.TARGETS, *webhooks.TARGETS, *content.TARGETS)
}


def main() -> int:
    """Run the targets. Return 1 if an input failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fuzz")
    parser.add_argument("--target", choices=sorted(TARGETS), help="one parser (default: all)")
    parser.add_argument("--count", type=int, default=100_000, help="number of inputs in all")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("error")
    chosen = [TARGETS[arguments.target]] if arguments.target else list(TARGETS.values())
    weights = sum(target.weight for target in chosen)
    say(
        f"seed {arguments.seed}\n\n| parser | inputs | outcomes | slowest, ms of CPU |\n|---|---|---|---|"
    )
    started, total, failures = time.process_time(), 0, []
    for target in chosen:
        count = max(1, round(arguments.count * target.weight / weights))
        try:
            result = fuzz(target, count, seed=arguments.seed, first=arguments.first)
        except AssertionError as error:
            failures.append("".join(traceback.format_exception(error)))
            continue
        outcomes = ", ".join(
            f"{number:,} {word}" for word, number in sorted(result.outcomes.items())
        )
        say(f"| {target.name} | {count:,} | {outcomes} | {result.slowest_s * 1000:.0f} |")
        total += count
    say(f"| all | {total:,} | | |\n\n{time.process_time() - started:.0f} s of CPU time")
    say("\n".join(failures))
    return 1 if failures else 0


def say(text: str) -> None:
    """Print without buffering."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
