"""Opening the agent for a program: its systems, its threads, and nothing of the service around them."""

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
from agent.factory import AgentOverrides, open_agent_factory
from agent.services import AgentSetup
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.threads import ThreadStore

DEFAULT_HOME = ".parley"
"""The data folder unless another is named: the service's own default."""


class AsyncParleyClient(
    ConversationsApi, ModelsApi, SkillsApi, McpApi, MemoryApi, CustomAgentsApi, FilesApi
):
    """The agent in this process: what the service offers over HTTP, as methods. Opened by `open_client`.

    Answers are dictionaries of the same form as those of the HTTP API; docs/howto/embed.md has the table.
    """


def agent_setup(
    config: AgentSetup | AgentConfig | Mapping[str, Any] | None, home: Path | str | None
) -> AgentSetup:
    """Return where a client's agent lives.

    Args:
        config: The sections of config.yaml as values (`$NAME` is not looked up here), or a whole site;
            None = the defaults, with the demo model.
        home: The data folder; None = the site's, else `.parley` in the working folder.

    Raises:
        pydantic.ValidationError: The sections cannot be used.
    """
    if isinstance(config, AgentSetup):
        return config if home is None else replace(config, home=Path(home).absolute())
    sections = (
        config if isinstance(config, AgentConfig) else AgentConfig.model_validate(config or {})
    )
    return AgentSetup(config=sections, home=Path(home or DEFAULT_HOME).expanduser().absolute())


@asynccontextmanager
async def open_client(
    config: AgentSetup | AgentConfig | Mapping[str, Any] | None = None,
    *,
    home: Path | str | None = None,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    database: StoreConfig | None = None,
    **options: Unpack[ClientOptions],
) -> AsyncIterator[AsyncParleyClient]:
    """Open the agent; leaving closes it, after what was said has been learnt from where memory is on.

    The data folder is held meanwhile: a running service, or another client, has one of its own.

    Args:
        config: See `agent_setup`.
        home: See `agent_setup`.
        checkpointer: Keeps the threads' state, with LangGraph's asynchronous methods; None = the data folder, where
            the service finds the threads too. It is the caller's: it is not closed.
        database: The `database` section; None = its defaults.
        options: How turns run unless they say otherwise, and what is made of the agent.

    Raises:
        Locked: A service or another client uses the data folder.
        StoreError: The data folder cannot be used.
        AgentError: The configuration names something that cannot be used.
    """
    site = agent_setup(config, home)
    settings, tailoring, label = _taken(options)
    if label is not None:
        site = replace(site, tracing=replace(site.tracing, label=label))
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(
            Database.open(database or StoreConfig(), site.home)
        )
        book: ThreadIndex
        if checkpointer is None:
            kept = await stack.enter_async_context(open_checkpointer(site.home))
            checkpointer, book = kept, StoredThreadIndex(ThreadStore(journal), kept)
        else:
            book = CheckpointThreadIndex(checkpointer)
        agents = await stack.enter_async_context(open_agent_factory(site, checkpointer, tailoring))
        yield AsyncParleyClient(agents, checkpointer, book, settings)


def _taken(options: ClientOptions) -> tuple[TurnSettings, AgentOverrides, str | None]:
    """Divide what was asked for. Raises TypeError for what nobody knows."""
    further: dict[str, Any] = dict(options)
    skills = further.pop("available_skills", None)
    if isinstance(skills, str):
        raise TypeError("available_skills is a list of names")
    tailoring = AgentOverrides(
        skills=None if skills is None else frozenset(skills),
        middlewares=tuple(further.pop("middlewares", None) or ()),
    )
    label = further.pop("environment", None)
    return TurnSettings(**further), tailoring, label
