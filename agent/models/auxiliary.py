"""Models for work outside the conversation: titles, summaries, memory, skill scans."""

from collections.abc import Awaitable, Callable

import anyio.to_thread
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig

from agent.config import AgentConfig
from agent.models.factory import create_chat_model
from agent.models.http_client import ModelHttpClient
from agent.usage.recorder import UsageRecorder

ModelSource = Callable[[str | None], Awaitable[BaseChatModel]]
"""Returns the model of an entry of `models` (None = the first), without thinking. Raises AgentError."""


class AuxiliaryModels:
    """Builds models on first use and caches them until the configuration changes."""

    def __init__(
        self,
        config: Callable[[], AgentConfig],
        http_client: ModelHttpClient,
        usage: UsageRecorder | None = None,
    ) -> None:
        self._config = config
        self._usage = usage
        self._http_client = http_client
        self._made_for: AgentConfig | None = None
        self._models: dict[str | None, BaseChatModel] = {}

    async def get(self, name: str | None = None) -> BaseChatModel:
        """Return a model.

        Raises:
            ModelNotFound, ModelUnusable: The entry does not exist or cannot be used.
        """
        config = self._config()
        if config is not self._made_for:
            self._made_for, self._models = config, {}
        if name not in self._models:
            self._models[name] = await anyio.to_thread.run_sync(
                lambda: create_chat_model(
                    config, name, http_client=self._http_client, usage=self._usage
                )
            )
        return self._models[name]


def auxiliary_run_config(purpose: str) -> RunnableConfig:
    """Return the config for a model call whose tokens must not appear in the run's stream.

    >>> auxiliary_run_config("title")["tags"]
    ['nostream', 'middleware:title']
    """
    return {"run_name": f"{purpose}_agent", "tags": ["nostream", f"middleware:{purpose}"]}
