"""`make soak`, or `python -m tests.lab.soak --hours 2`. Exits with 1 if a value grows that must not."""

import argparse
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path

import anyio

from tests.lab.soak.report import markdown_table, write_page
from tests.lab.soak.run import SoakOptions, run_soak
from tests.lab.soak.samples import Sample, problems


def main() -> int:
    """Run a soak test, and write its page after each sample. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.soak")
    parser.add_argument("--hours", type=float, default=2.0, help="length (default: 2)")
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second (default: 20)")
    parser.add_argument(
        "--seed", type=int, default=1, help="number that determines who writes when, and the faults"
    )
    parser.add_argument("--report", type=Path, default=Path("soak-report.html"), metavar="FILE")
    arguments = parser.parse_args()
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # cuts connections on purpose
    options = SoakOptions(
        seed=arguments.seed, minutes=arguments.hours * 60, turns_per_s=arguments.rate
    )
    folder = Path(tempfile.mkdtemp(prefix="parley-soak-"))
    samples: list[Sample] = []
    anyio.run(partial(run_soak, options, folder, partial(_note, samples, arguments.report)))
    found = problems(samples)
    sys.stdout.write(
        markdown_table(samples)
        + "\n"
        + "\n".join(found or ["No value grows that must not."])
        + "\n"
    )
    sys.stdout.write(f"Page: {arguments.report}. Data and log: {folder}\n")
    return 1 if found else 0


def _note(samples: list[Sample], report: Path, sample: Sample) -> None:
    samples.append(sample)
    values = ", ".join(f"{name} {value:.1f}" for name, value in sample.values.items())
    sys.stdout.write(f"{sample.at_s / 60:6.1f} min, {sample.turns} turns: {values}\n")
    sys.stdout.flush()
    write_page(samples, problems(samples), report)


if __name__ == "__main__":
    sys.exit(main())
