"""`parley playground`: simulated Slack, Telegram and Feishu in a page, with their own service."""

import argparse
import sys
from functools import partial

import anyio

from gateway.playground.program import load_operator_config, run_playground


def run(arguments: argparse.Namespace) -> int:
    """Run the playground until it is stopped."""
    config = load_operator_config(arguments.config)
    port: int | None = arguments.port
    anyio.run(
        partial(
            run_playground,
            config,
            port=port,
            on_start=_print_link,
            ends_with_input=arguments.with_parent,
        )
    )
    return 0


def _print_link(link: str) -> None:
    sys.stdout.write(f"Playground: {link}\n")
    sys.stdout.flush()
