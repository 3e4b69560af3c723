"""`parley health`: asks the service on this machine whether it is healthy; for the health checks of containers."""

import argparse
import sys

import httpx

from gateway.command_errors import EXIT_FAILED
from gateway.config import load_config
from gateway.service_client import service_url

TIMEOUT_S = 4.0


def run(arguments: argparse.Namespace) -> int:
    """Print the service's answer. Returns 1 if it does not answer or is not healthy (with `--ready`: not ready)."""
    url = service_url(load_config(arguments.config))
    path = "/health/ready" if arguments.ready else "/health"
    try:
        answer = httpx.get(f"{url}{path}", timeout=TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        sys.stderr.write(f"parley: {url} does not respond ({type(error).__name__})\n")
        return EXIT_FAILED
    sys.stdout.write(f"{answer.text.strip()}\n")
    return 0 if answer.is_success else EXIT_FAILED
