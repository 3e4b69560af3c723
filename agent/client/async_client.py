"""AsyncParleyClient, and `open_client`, which opens the agent without the rest of the service."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from typing_extensions import Unpack

from agent.client.agents import CustomAgentsApi
from agent.client.conversations import ConversationsApi
from agent.client.files import FilesApi
from agent.client.mcp import McpApi
from agent.client.memory import MemoryApi
from agent.client.models import ModelsApi
from agent.client.options import ClientOptions, TurnSettings
from agent.client.skills import SkillsApi
from agent.client.threads import CheckpointThreadIndex, StoredThreadIndex, ThreadIndex
from agent.config import AgentConfig
from agent.factory import open_agent_factory
from agent.services import AgentSetup
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.files.opening import open_mirror
from store.guardrail_decisions import GuardrailDecisions
from store.past_messages import PastMessages
from store.threads import ThreadStore
from store.usage import UsageStore

DEFAULT_HOME = ".parley"
"""The default data folder, the same as the service's."""


class AsyncParleyClient(
    ConversationsApi, ModelsApi, SkillsApi, McpApi, MemoryApi, CustomAgentsApi, FilesApi
):
    """The agent in this process: the HTTP API's features as methods. Opened by `open_client`.

    Results are dictionaries in the form of the HTTP API's responses; see the table in docs/howto/embed.md.
    """


def agent_setup(
    config: AgentSetup | AgentConfig | Mapping[str, Any] | None, home: Path | str | None
) -> AgentSetup:
    """Return the setup for a client's `config` and `home` arguments.

    Args:
        config: The sections of config.yaml as values (`$NAME` is not substituted here), or a complete setup;
            None = the defaults, with the demo model.
        home: The data folder; None = the setup's, or `.parley` in the working directory.

    Raises:
        pydantic.ValidationError: The sections are invalid.
    """
    if isinstance(config, AgentSetup):
        return config if home is None else replace(config, home=Path(home).absolute())
    if not isinstance(config, AgentConfig):
        config = AgentConfig.model_validate(config or {})
    return AgentSetup(config=config, home=Path(home or DEFAULT_HOME).expanduser().absolute())


@asynccontextmanager
async def open_client(
    config: AgentSetup | AgentConfig | Mapping[str, Any] | None = None,
    *,
    home: Path | str | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    database: StoreConfig | None = None,
    **options: Unpack[ClientOptions],
) -> AsyncIterator[AsyncParleyClient]:
    """Open the agent. Leaving the block finishes memory updates, then closes the agent.

    The client locks its data folder, so a running service or another client needs a different one.

    Args:
        config: See `agent_setup`.
        home: See `agent_setup`.
        checkpointer: Stores thread state. Only its async methods are called, and it is not closed. None = the data
            folder, as in the service.
        database: The `database` section; None = its defaults.
        options: Defaults for turns, and how the agent is built.

    Raises:
        StoreLocked: A service or another client uses the data folder.
        StoreError: The data folder cannot be used.
        AgentError: The configuration names something that cannot be used.
        TypeError: An option is unknown.
    """
    setup = agent_setup(config, home)
    turn_options: dict[str, Any] = dict(options)
    skills = turn_options.pop("available_skills", None)
    if isinstance(skills, str):
        raise TypeError("available_skills must be a list of names")
    skills = None if skills is None else frozenset(skills)
    middleware = tuple(turn_options.pop("middlewares", None) or ())
    label = turn_options.pop("environment", None)
    if label is not None:
        setup = replace(setup, tracing=replace(setup.tracing, label=label))
    defaults = TurnSettings(**turn_options)
    async with AsyncExitStack() as stack:
        db = await stack.enter_async_context(Database.open(database or StoreConfig(), setup.home))
        mirror = await open_mirror(setup.storage, setup.home, db)
        setup = replace(
            setup,
            mirror=mirror,
            past_messages=PastMessages(db),
            usage=UsageStore(db),
            guardrail_decisions=GuardrailDecisions(db),
        )
        index: ThreadIndex
        if checkpointer is None:
            checkpoints = await stack.enter_async_context(open_checkpointer(setup.home, db))
            index = StoredThreadIndex(ThreadStore(db), checkpoints)
            checkpointer = checkpoints
        else:
            index = CheckpointThreadIndex(checkpointer)
        factory = await stack.enter_async_context(
            open_agent_factory(setup, checkpointer, available_skills=skills, middleware=middleware)
        )
        yield AsyncParleyClient(factory, checkpointer, index, defaults)
