"""Replaces the beginning of long threads with a summary, in requests only. The thread keeps all messages.

LangChain's own middleware is not used: it is a graph step, waits for the summary, and deletes the messages it
summarizes.
"""

import logging
from collections.abc import Sequence
from typing import Any, cast

import anyio
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.config import SummarizationConfig
from agent.middleware.handler_types import ModelHandler
from agent.middleware.history_size import (
    HistorySize,
    context_size,
    cut_index,
    history_size,
    shorten_message,
    trigger_sizes,
)
from agent.middleware.sanitization import escape_reserved_tags
from agent.middleware.visible_history import message_index, recent_skill_reads, visible_messages
from agent.models.failures import is_context_overflow
from agent.options import RunContext
from agent.state import HistorySummary, ThreadState
from agent.summarizer import SummarizationHook, Summarizer, SummaryJob
from agent.token_estimate import estimate_message_tokens

log = logging.getLogger(__name__)

MAX_WAIT_S = 5.0
"""How long a model call waits for a summary, seconds. After this time, the history is sent unchanged."""

MIN_NEW_SHARE = 0.2
"""Smallest share of the history that a summary must replace. Without it, each model call would start another summary
if the messages to keep are too long by themselves."""

OVERFLOW_SHARES = (2, 4, 8)
"""How much shorter the history gets with each retry after the model rejected it as too long."""

Request = ModelRequest[Any]
Response = ModelResponse[Any]


class SummarizationMiddleware(AgentMiddleware[ThreadState, Any]):
    """Replaces the beginning of the thread with a summary, in requests only.

    A background task writes the summary. A model call waits at most `max_wait_s` for it; until the summary is ready,
    the history is sent unchanged. The state stores the summary and the first message after it, together with the
    model's answer. If that message is gone because the thread was rewound, the summary is ignored.

    If the model rejects the request as too long, it is called again with a shorter history. The dropped messages are
    summarized; if the summary is late, later model calls use it.

    Args:
        config: The section; it is enabled.
        model: The agent's model: its profile has the context size.
        summarizer: Writes the summaries.
        skills: The virtual path of the skills.
        hooks: Called with the messages that a summary replaces. Failures of hooks are logged.
        max_wait_s: How long one model call waits for a summary, seconds.

    Raises:
        ModelUnusable: A size is a fraction, and the context size is unknown.
    """

    def __init__(
        self,
        config: SummarizationConfig,
        *,
        model: BaseChatModel,
        summarizer: Summarizer,
        skills: str,
        hooks: Sequence[SummarizationHook] = (),
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        super().__init__()
        self._config = config
        self._summarizer = summarizer
        self._skills = skills
        self._hooks = tuple(hooks)
        self._max_wait_s = max_wait_s
        self._triggers = trigger_sizes(config, model)
        self._keep = history_size(config.keep, context_size(config, model))

    @override
    async def awrap_model_call(
        self, request: Request, handler: ModelHandler
    ) -> Response | ExtendedModelResponse[Any]:
        known = cast("HistorySummary | None", request.state.get("summary"))
        summary = self._take_summary(request) or known
        if summary is known:
            visible = visible_messages(request.messages, known)
            if any(size.is_reached(visible) for size in self._triggers):
                await self._start(request, known, self._keep)
                summary = self._take_summary(request) or known
        response = await handler(_with_summary(request, summary))
        if is_context_overflow(response.result):
            response, summary = await self._call_with_less(request, handler, response, summary)
        if summary is known:
            return response
        return ExtendedModelResponse(response, Command(update={"summary": summary}))

    async def _call_with_less(
        self,
        request: Request,
        handler: ModelHandler,
        response: Response,
        summary: HistorySummary | None,
    ) -> tuple[Response, HistorySummary | None]:
        """Call the model with less and less of the history until it accepts the request."""
        size = estimate_message_tokens(visible_messages(request.messages, summary))
        for share in OVERFLOW_SHARES:
            keep = HistorySize(unit="tokens", value=size // share)
            log.warning("The history is too long for the model: keeping %d tokens", keep.value)
            await self._start(request, summary, keep)
            summary = self._take_summary(request) or summary
            response = await handler(_with_less(request, summary, keep))
            if not is_context_overflow(response.result):
                break
        return response, summary

    async def _start(
        self, request: Request, summary: HistorySummary | None, keep: HistorySize
    ) -> None:
        """Start a summary of the messages before those to keep, unless one is being written.

        Only the model call that starts the summary waits for it, within the limit.
        """
        if self._summarizer.job(_key(request)) is not None:
            return
        job = self._start_job(request, summary, keep)
        if job is not None:
            with anyio.move_on_after(self._max_wait_s):
                await job.done.wait()

    def _start_job(
        self, request: Request, summary: HistorySummary | None, keep: HistorySize
    ) -> SummaryJob | None:
        recent = _after(request.messages, summary)
        cut = cut_index(recent, keep)
        new, kept_from = recent[:cut], recent[cut].id if recent else None
        visible = visible_messages(request.messages, summary)
        least = MIN_NEW_SHARE * estimate_message_tokens(visible)
        if not new or kept_from is None or estimate_message_tokens(new) < least:
            return None
        job = SummaryJob(
            messages=new,
            previous=summary["text"] if summary and recent is not request.messages else "",
            kept_from=kept_from,
            kept_calls=recent_skill_reads(
                visible[: len(visible) - len(recent) + cut], self._skills
            ),
        )
        self._summarizer.start(_key(request), self._config, job)
        return job

    def _take_summary(self, request: Request) -> HistorySummary | None:
        """Return the summary that was finished for this thread since the last model call."""
        job = self._summarizer.job(_key(request))
        if job is None or not job.text:
            return None
        self._summarizer.discard(_key(request))
        if message_index(request.messages, job.kept_from) is None:
            return None
        self._call_hooks(job.messages, request)
        # The model may repeat tags that were plain text in its input.
        return {**job.summary(), "text": escape_reserved_tags(job.text)}

    def _call_hooks(self, dropped: Sequence[AnyMessage], request: Request) -> None:
        for hook in self._hooks:
            try:
                hook(dropped, RunContext.from_runtime(request.runtime.context, get_config()))
            except Exception:
                # a failing hook does not invalidate the summary
                log.exception("A summarization hook failed")


def _key(request: Request) -> str:
    """Return a key for a history. The thread id is not enough, because subagents share their parent's thread."""
    return str(request.messages[0].id) if request.messages else ""


def _after(messages: list[AnyMessage], summary: HistorySummary | None) -> list[AnyMessage]:
    """Return the messages that a summary does not cover. Returns the same list if it covers none."""
    start = message_index(messages, summary["kept_from"]) if summary else None
    return messages[start:] if start else messages


def _with_summary(request: Request, summary: HistorySummary | None) -> Request:
    messages = visible_messages(request.messages, summary)
    return request if messages is request.messages else request.override(messages=messages)


def _with_less(request: Request, summary: HistorySummary | None, keep: HistorySize) -> Request:
    """Return the request with at most about `keep` of the history, and no message longer than half of it."""
    recent = _after(request.messages, summary)
    cut = cut_index(recent, keep)
    if cut and recent[cut].id is not None:
        text = summary["text"] if summary else ""
        summary = HistorySummary(text=text, kept_from=str(recent[cut].id), kept_calls=[])
    messages = visible_messages(request.messages, summary)
    return request.override(
        messages=[shorten_message(message, keep.value // 2) for message in messages]
    )
