"""The agent in a program of one's own, as config.yaml describes it: `ParleyClient` with the file read."""

import logging
from collections.abc import MutableMapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from typing_extensions import Unpack

from agent.client import AsyncParleyClient, ParleyClient, open_client
from agent.client.options import ClientOptions
from gateway.agent_setup import agent_setup_from_config
from gateway.config import Config, export_environment, load_config

log = logging.getLogger(__name__)


def client_from(
    config_path: Path | str | None = None,
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    environ: MutableMapping[str, str] | None = None,
    **options: Unpack[ClientOptions],
) -> ParleyClient:
    """Return a client for the agent of a configuration, to be opened by `with`.

    Args:
        config_path: The file; None = the one that `parley serve` would find, or the defaults.
        checkpointer: Keeps the threads' state; None = the data folder ($PARLEY_HOME).
        environ: The variables; None = those of the process.
        options: See `ClientOptions`.

    Raises:
        ConfigError: The configuration cannot be used.
    """
    config = _load_config(config_path, environ)
    return ParleyClient(
        agent_setup_from_config(config),
        checkpointer=checkpointer,
        database=config.database,
        **options,
    )


def open_client_from(
    config_path: Path | str | None = None,
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    environ: MutableMapping[str, str] | None = None,
    **options: Unpack[ClientOptions],
) -> AbstractAsyncContextManager[AsyncParleyClient]:
    """Do the same for asynchronous programs: to be opened by `async with`."""
    config = _load_config(config_path, environ)
    return open_client(
        agent_setup_from_config(config),
        checkpointer=checkpointer,
        database=config.database,
        **options,
    )


def _load_config(path: Path | str | None, environ: MutableMapping[str, str] | None) -> Config:
    config = load_config(None if path is None else str(path), environ)
    export_environment(config, environ)
    for line in config.warnings:
        log.warning("%s", line)
    return config
