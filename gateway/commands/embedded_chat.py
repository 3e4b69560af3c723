"""`parley chat` without a running service: the agent in this process."""

from dataclasses import replace
from functools import partial

from bots.terminal.adapter import TERMINAL
from gateway import logs
from gateway.command_errors import CommandFailed
from gateway.compose import open_app
from gateway.config import Config
from gateway.services import Services
from gateway.terminal.chat import run_chat
from gateway.terminal.local_client import open_local_client
from store.database import Database
from store.errors import StoreLocked
from store.inbox import InboxStore
from store.outbox import OutboxStore


async def run_embedded_chat(config: Config, session: str) -> None:
    """Start the service without a port and without platforms, and chat with it.

    Raises:
        CommandFailed, StoreError: The service cannot be started.
    """
    if not config.bots.terminal.enabled:
        raise CommandFailed("channels.terminal.enabled is false: set it to true to chat here")
    try:
        logs.configure_logging(
            config.log_level, config.log_format, secrets=config.secrets, file=config.log_file
        )
    except OSError as error:
        raise CommandFailed(f"{config.log_file}: cannot be written ({error.strerror})") from None
    try:
        await _check_no_pending_work(config)
        async with open_app(_disable_platforms(config)) as app:
            services: Services = app.state.services
            if services.terminal is None or services.bus is None:
                raise CommandFailed("the terminal channel did not start; see the log")
            open_terminal = partial(open_local_client, services.terminal, services.bus)
            await run_chat(config, open_terminal, session)
    except StoreLocked as error:
        raise CommandFailed(
            f"{error} Nothing responds at {config.base_url}: is gateway.port the port of the running service?"
        ) from None


async def _check_no_pending_work(config: Config) -> None:
    """Raise CommandFailed if other channels have unfinished messages, which would fail without their platforms."""
    async with Database.open(config.database, config.home) as database:
        waiting = {row.key.channel for row in await InboxStore(database).list_unfinished()}
        owed = {row.conversation.channel for row in await OutboxStore(database).list_open()}
    if others := sorted((waiting | owed) - {TERMINAL}):
        raise CommandFailed(
            f"unanswered messages of {', '.join(others)}: start `parley serve`, then `parley chat`"
        )


def _disable_platforms(config: Config) -> Config:
    """Return the configuration with all platforms disabled."""
    off = {
        name: section.model_copy(update={"enabled": False})
        for name, section in config.bots.platforms.items()
    }
    return replace(config, bots=config.bots.model_copy(update=off))
