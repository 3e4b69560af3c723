"""Keeps requests within the model's context size. The thread keeps all messages.

Old tool results are left out first, then a summary replaces the beginning. See decision 0040 for why LangChain's own
middleware is not used.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.config import SummarizationConfig
from agent.middleware.handler_types import ModelHandler
from agent.middleware.history_size import HistoryLimits, KeptSize, request_tokens
from agent.middleware.important import marked_words, newest_words
from agent.middleware.sanitization import escape_reserved_tags
from agent.middleware.visible_history import (
    VisibleHistory,
    message_index,
    recent_skill_reads,
    saved_tokens,
)
from agent.models.failures import is_context_overflow
from agent.options import RunContext
from agent.saved_texts import SavedTexts, message_text, part_path
from agent.state import HistorySummary, ThreadState
from agent.summarizer import SummarizationHook, Summarizer, SummaryJob, conversation_text
from agent.token_estimate import estimate_message_tokens
from agent.tools.files import find_shown_lines

log = logging.getLogger(__name__)

MAX_WAIT_S = 5.0
"""How long a turn waits for a summary before it leaves messages out without one, seconds. Once per summary."""

OVERFLOW_WAIT_S = 60.0
"""How long a turn waits for a summary after the model rejected the request as too long, seconds."""

MIN_NEW_SHARE = 0.2
"""Smallest share of the history that a summary must replace. Without it, each model call would start another summary
if the messages to keep are too long by themselves."""

MIN_LEFT_OUT_SHARE = 0.05
"""Smallest share of the context size that leaving out old tool results must save at a time, because each time the rest
of the prompt is no longer cached."""

SUMMARY_SHARE = 0.05
"""Maximum size of a summary, and of the words that people marked as important. Each is this share of the context
size."""

MIN_SUMMARY_TOKENS = 1_500
"""Lower bound of this maximum for small models, tokens."""

OVERFLOW_SHARES = (2, 4, 8)
"""Each retry after the model rejected the history as too long divides its length by one of these numbers."""

Request = ModelRequest[Any]
Response = ModelResponse[Any]


@dataclass(frozen=True, slots=True)
class _Sized:
    """A history with the size of a request that contains it, tokens."""

    history: VisibleHistory
    tokens: int

    def changed(self, history: VisibleHistory) -> "_Sized":
        """Return another view of the same thread, with an estimated size, because no usage was reported for it."""
        if history is self.history:
            return self
        before, after = map(estimate_message_tokens, (self.history.messages, history.messages))
        return _Sized(history, self.tokens - before + after)


class SummarizationMiddleware(AgentMiddleware[ThreadState, Any]):
    """Makes long histories shorter, in requests only.

    1. A background task summarizes the beginning of the thread, usually once it takes 60% of the context size. No call
       waits for it; the first call after it has ended uses it.
    2. At 80%, old tool results are left out, many at a time. If that makes enough room, nothing is summarized.
    3. If the context size is known and would be exceeded, messages are left out without a summary, after a wait of at
       most `max_wait_s`. The next summary covers them.
    4. If the model rejects the request as too long, the same happens, and the call is repeated.

    Files of the thread hold everything that is left out, and the request names these files. A record of the omissions
    is saved in the state together with the model's answer. It has no effect if the thread was rewound.

    Args:
        config: The section; it is enabled.
        model: The agent's model. Its profile has the context size.
        summarizer: Writes the summaries.
        texts: Saves the texts that are left out.
        skills: The virtual path of the skills.
        hooks: Called with the messages that requests no longer contain. Failures of hooks are logged.
        max_wait_s: How long a turn waits for one summary, seconds.
    """

    def __init__(
        self,
        config: SummarizationConfig,
        *,
        model: BaseChatModel,
        summarizer: Summarizer,
        texts: SavedTexts,
        skills: str,
        hooks: Sequence[SummarizationHook] = (),
        max_wait_s: float = MAX_WAIT_S,
    ) -> None:
        super().__init__()
        self._config = config
        self._summarizer = summarizer
        self._texts = texts
        self._skills = skills
        self._hooks = tuple(hooks)
        self._max_wait_s = max_wait_s
        self._limits = HistoryLimits.from_config(config, model)
        self._summary_tokens = max(int(self._limits.window * SUMMARY_SHARE), MIN_SUMMARY_TOKENS)

    @override
    async def awrap_model_call(
        self, request: Request, handler: ModelHandler
    ) -> Response | ExtendedModelResponse[Any]:
        state = cast("ThreadState", request.state)
        known = VisibleHistory(request.messages, state.get("summary"), state.get("left_out"))
        sized = _Sized(known, request_tokens(known.messages))
        sized = await self._make_shorter(await self._use_summary(request, sized), request)
        response = await handler(_with_history(request, sized.history))
        if is_context_overflow(response.result):
            response, sized = await self._call_with_less(request, handler, response, sized)
        history = sized.history
        if history is known:
            return response
        update = {"summary": history.summary, "left_out": history.left_out}
        return ExtendedModelResponse(response, Command(update=update))

    async def _make_shorter(self, sized: _Sized, request: Request) -> _Sized:
        """Return a shorter history if it is too long. Start a summary if it will be too long soon."""
        limits, history = self._limits, sized.history
        has_gap = history.summarized < history.start
        if not (has_gap or limits.are_reached(len(history.messages), sized.tokens)):
            return sized
        shorter = history.without_results(history.cut(limits.keep), self._skills)
        saved = saved_tokens(
            history.part(history.start, len(history.thread)),
            shorter.part(shorter.start, len(shorter.thread)),
        )
        if has_gap or limits.are_reached(len(shorter.messages), sized.tokens - saved):
            shorter = await self._start(sized.history, request, shorter, limits.keep)
        if sized.tokens >= limits.leave_out_at and saved >= limits.window * MIN_LEFT_OUT_SHARE:
            sized = sized.changed(await self._saved(shorter, request, history))
        if limits.full_at is None or sized.tokens < limits.full_at:
            return sized
        sized = await self._use_summary(request, sized, wait_s=self._max_wait_s)
        if sized.tokens < limits.full_at:
            return sized
        log.warning("The history is too long for the model: leaving messages out")
        return await self._keep_only(sized, request, limits.window // 2)

    async def _keep_only(self, sized: _Sized, request: Request, tokens: int) -> _Sized:
        """Reduce the history to about this many tokens: drop older messages, and shorten the longest texts."""
        history = sized.history
        end = history.cut(KeptSize(tokens=tokens))
        dropped = estimate_message_tokens(history.part(history.start, end))
        if dropped >= MIN_NEW_SHARE * estimate_message_tokens(history.messages):
            history = await self._evict(history, request, end)
        shortened = history.shortened(tokens)
        return sized.changed(await self._saved(shortened, request, history))

    async def _call_with_less(
        self, request: Request, handler: ModelHandler, response: Response, sized: _Sized
    ) -> tuple[Response, _Sized]:
        """Call the model with less and less of the history until it accepts the request."""
        tokens = estimate_message_tokens(sized.history.messages)
        shorter = sized.history.without_results(
            sized.history.cut(self._limits.keep.at_most(tokens // 2)), self._skills
        )
        if saved_tokens(sized.history.messages, shorter.messages):
            sized = sized.changed(await self._saved(shorter, request, sized.history))
            log.warning("The history is too long for the model: leaving out tool results")
            response = await handler(_with_history(request, sized.history))
        for share in OVERFLOW_SHARES:
            if not is_context_overflow(response.result):
                break
            keep = KeptSize(tokens=tokens // share)
            log.warning("The history is too long for the model: keeping %d tokens", keep.tokens)
            await self._start(sized.history, request, sized.history, keep)
            sized = await self._use_summary(request, sized, wait_s=OVERFLOW_WAIT_S)
            sized = await self._keep_only(sized, request, keep.tokens)
            response = await handler(_with_history(request, sized.history))
        return response, sized

    # ---- summaries -----------------------------------------------------------------------------

    async def _start(
        self, history: VisibleHistory, request: Request, shorter: VisibleHistory, keep: KeptSize
    ) -> VisibleHistory:
        """Start a summary of the messages before those to keep, unless one is being written.

        Args:
            history: The history.
            request: The request.
            shorter: The history as the summary model sees it.
            keep: How much of the end not to summarize.

        Returns:
            `shorter`, with a note at texts that could not be saved.
        """
        if self._summarizer.job(_job_key(request, history)) is not None:
            return shorter
        begin, end = shorter.summarized, shorter.cut(keep)
        new = shorter.part(shorter.start, end)
        is_little = estimate_message_tokens(new) < MIN_NEW_SHARE * estimate_message_tokens(
            shorter.messages
        )
        if end <= begin or (is_little and begin == shorter.start):
            return shorter
        shorter = await self._saved(shorter, request, history)
        summary = shorter.summary
        job = SummaryJob(
            messages=shorter.part(begin, end),
            previous=summary["text"] if summary and begin else "",
            kept_from=str(shorter.thread[end].id),
            max_tokens=self._summary_tokens,
        )
        self._summarizer.start(_job_key(request, history), self._config, job)
        return shorter

    async def _use_summary(self, request: Request, sized: _Sized, wait_s: float = 0.0) -> _Sized:
        """Return the history with the summary that has finished since the last model call, if there is one."""
        history = sized.history
        job = self._summarizer.job(_job_key(request, history))
        if job is None:
            return sized
        if wait_s and not job.was_awaited:
            job.was_awaited = True
            with anyio.move_on_after(wait_s):
                await job.done.wait()
        if not job.text:
            return sized
        self._summarizer.discard(_job_key(request, history))
        end = message_index(history.thread, job.kept_from)
        if end is None:
            return sized
        # The model may repeat tags that were plain text in its input.
        text = escape_reserved_tags(job.text)
        return sized.changed(await self._evict(history, request, end, text))

    async def _evict(
        self, history: VisibleHistory, request: Request, end: int, text: str | None = None
    ) -> VisibleHistory:
        """Return the history without the messages before an index. A file holds them.

        Args:
            history: The history.
            request: The request.
            end: The index.
            text: A summary of everything before the index; None = keep the existing summary.
        """
        start, old = history.start, history.summary if history.start else None
        if text is None and end <= start:
            return history
        kept_from = str(history.thread[max(start, end)].id)
        summarized_to = str(history.thread[end if text is not None else history.summarized].id)
        summary = HistorySummary(
            text=text if text is not None else old["text"] if old else "",
            kept_from=kept_from,
            summarized_to=summarized_to,
            kept_calls=old["kept_calls"] if old else [],
            important=old["important"] if old else [],
            parts=old["parts"] if old else 0,
        )
        if end > start:
            shorter = history.without_results(end, self._skills)
            history = await self._saved(shorter, request, history)
            evicted = history.thread[start:end]
            await self._add_part(summary, history, request, end)
            words = [*summary["important"], *marked_words(evicted)]
            summary["important"] = newest_words(words, 4 * self._summary_tokens)
            visible = history.messages
            shown = visible[: len(visible) - (len(history.thread) - end)]
            summary["kept_calls"] = recent_skill_reads(shown, self._skills)
            self._call_hooks(evicted, request)
        return replace(history, summary=summary)

    async def _add_part(
        self, summary: HistorySummary, history: VisibleHistory, request: Request, end: int
    ) -> None:
        path = part_path(history.key, summary["parts"] + 1)
        text = conversation_text(history.part(history.start, end))
        if not await self._texts.save_all(_caller(request).thread_id, {path: text}):
            summary["parts"] += 1

    async def _saved(
        self, history: VisibleHistory, request: Request, before: VisibleHistory
    ) -> VisibleHistory:
        """Save the texts that a history shows in part but an earlier view of it shows in full.

        Skips a text that is still in the file from which the model read it.

        Returns:
            The history with a note at texts that could not be saved, or are in other files.
        """
        saved = before.partial_texts
        messages = {path: one for path, one in history.partial_texts.items() if path not in saved}
        lines = await self._lines_in_files(history, request, messages.values())
        history = history.with_files(lines)
        messages = {path: one for path, one in messages.items() if str(one.id) not in lines}
        if not messages:
            return history
        texts = {path: message_text(message) for path, message in messages.items()}
        failed = await self._texts.save_all(_caller(request).thread_id, texts)
        return history.with_unsaved([str(messages[path].id) for path in failed])

    async def _lines_in_files(
        self, history: VisibleHistory, request: Request, messages: Iterable[AnyMessage]
    ) -> dict[str, str]:
        """Return, by message ID, the lines of files that still contain the texts that the model read."""
        paths, found = history.read_paths(), dict[str, str]()
        for message in messages:
            path = paths.get(message.tool_call_id) if isinstance(message, ToolMessage) else None
            file = path and await self._texts.current(_caller(request).thread_id, path)
            if not file:
                continue
            # Not on the event loop: files may be several megabytes.
            work = partial(find_shown_lines, message_text(message), file[1])
            if lines := await anyio.to_thread.run_sync(work):
                found[str(message.id)] = f"lines {lines[0]} to {lines[1]} of {file[0]}"
        return found

    def _call_hooks(self, dropped: Sequence[AnyMessage], request: Request) -> None:
        for hook in self._hooks:
            try:
                hook(dropped, _caller(request))
            except Exception:
                # a failing hook does not invalidate the summary
                log.exception("A summarization hook failed")


def _caller(request: Request) -> RunContext:
    return RunContext.from_runtime(request.runtime.context, get_config())


def _job_key(request: Request, history: VisibleHistory) -> str:
    """Return the key of a thread's summary. It includes the thread's ID, because threads may share message IDs."""
    return f"{_caller(request).thread_id} {history.key}"


def _with_history(request: Request, history: VisibleHistory) -> Request:
    messages = history.messages
    return request if messages is request.messages else request.override(messages=messages)
