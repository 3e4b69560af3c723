"""CountedModel: a chat model that counts its calls, and refuses calls that exceed a limit."""

from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler, Callbacks
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult
from pydantic import create_model
from typing_extensions import override

from agent.config import ModelConfig
from agent.models.failures import classify_error
from agent.usage.recorder import UsageRecorder

_PURPOSE = "middleware:"
"""Tags of side calls begin with it; see `auxiliary_run_config`."""

if TYPE_CHECKING:
    _Base = BaseChatModel
else:
    _Base = object  # otherwise pydantic would attribute the fields of BaseChatModel to a subclass


class UsageCallback(BaseCallbackHandler):
    """Callback of a counted model. Holds its entry and recorder, and counts the streamed tokens.

    Args:
        recorder: Counts the calls.
        entry: The model's entry.
    """

    run_inline = True  # Otherwise each token would pass through a worker thread.
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self, recorder: UsageRecorder, entry: ModelConfig) -> None:
        self.recorder = recorder
        self.entry = entry

    @override
    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        """Do nothing. Without this method, LangChain formats the whole prompt as text for the callback."""

    @override
    def on_llm_new_token(
        self, token: str | list[str | dict[str, Any]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        self.recorder.add_streamed(run_id, token)


class CountedModel(_Base):
    """Mixin for chat models with a `UsageCallback`.

    A callback alone would not do: if a callback raises at the start of a call, LangChain never awaits the later ones.
    """

    @override
    async def agenerate(
        self,
        messages: list[list[BaseMessage]],
        stop: list[str] | None = None,
        callbacks: Callbacks = None,
        *,
        tags: list[str] | None = None,
        run_id: UUID | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        """Make a call. Raises UsageLimitReached instead if a limit leaves no room for it."""
        call_id = run_id or uuid4()
        own = self.callbacks if isinstance(self.callbacks, list) else []
        usage = next(one for one in own if isinstance(one, UsageCallback))
        purpose = next((t.removeprefix(_PURPOSE) for t in tags or () if t.startswith(_PURPOSE)), "")
        await usage.recorder.begin(call_id, usage.entry, messages[0], kwargs.get("tools"), purpose)
        try:
            result = await super().agenerate(
                messages, stop, callbacks, tags=tags, run_id=call_id, **kwargs
            )
        except BaseException as error:
            usage.recorder.fail(call_id, usage.entry, was_served=_was_served(error))
            raise
        message = getattr(result.generations[0][0], "message", None)
        usage.recorder.finish(
            call_id, usage.entry, message if isinstance(message, AIMessage) else None
        )
        return result


def _was_served(error: BaseException) -> bool:
    """Return whether a server may have processed a failed call, that is, was reached and did not refuse it."""
    failure = classify_error(error) if isinstance(error, Exception) else None
    return failure is None or not (failure.status or failure.reason == "connection")


@cache
def counted_class(model_class: type[BaseChatModel]) -> type[BaseChatModel]:
    """Return a subclass with `CountedModel`, under the same name."""
    return create_model(
        model_class.__name__,
        __base__=(CountedModel, model_class),
        __module__=model_class.__module__,
        __doc__=model_class.__doc__,
    )
