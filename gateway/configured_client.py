"""`ParleyClient` for your own programs, configured by config.yaml."""

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
from gateway.config import Config, load_config, prepare_process_for_agent

log = logging.getLogger(__name__)


def client_from(
    config_path: Path | str | None = None,
    *,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    environ: MutableMapping[str, str] | None = None,
    **options: Unpack[ClientOptions],
) -> ParleyClient:
    """Return a client for the configured agent. Open it with `with`.

    Args:
        config_path: The file; None = the one that `parley serve` finds, or the defaults.
        checkpointer: Stores the states of threads; None = in the data folder ($PARLEY_HOME).
        environ: Environment variables; None = the process's.
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
    """Return an asynchronous client. Open it with `async with`. See `client_from`."""
    config = _load_config(config_path, environ)
    return open_client(
        agent_setup_from_config(config),
        checkpointer=checkpointer,
        database=config.database,
        **options,
    )


def _load_config(path: Path | str | None, environ: MutableMapping[str, str] | None) -> Config:
    config = load_config(None if path is None else str(path), environ)
    prepare_process_for_agent(config, environ)
    for line in (*config.unknown_keys, *config.warnings):
        log.warning("%s", line)
    return config
