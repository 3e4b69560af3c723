"""What all parts of the bus share: configuration, adapters, stores, servers, clock and task group."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from anyio.abc import TaskGroup
from langgraph_sdk.client import LangGraphClient

from bus.config import BusConfig, ChannelPolicy
from bus.platform import Adapter, Clock
from bus.stores import JournalStores


@dataclass(frozen=True, slots=True, kw_only=True)
class BusContext:
    """The surroundings of a running bus.

    Attributes:
        tasks: Owns all tasks of the bus.
        config: Limits and the default session.
        policies: Who may talk to the bot, by channel.
        adapters: The platforms to connect, by channel.
        stores: The journal.
        langgraph: The agent's server.
        gateway: The gateway's REST API; its base URL ends in `/api`.
        now: The wall clock.
    """

    tasks: TaskGroup
    config: BusConfig
    policies: Mapping[str, ChannelPolicy]
    adapters: Mapping[str, Adapter]
    stores: JournalStores
    langgraph: LangGraphClient
    gateway: httpx.AsyncClient
    now: Clock
