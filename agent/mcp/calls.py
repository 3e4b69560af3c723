"""McpCall: one tool call on a server. It keeps running while a person answers the server's question."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
from langgraph.types import interrupt
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult

from agent.errors import McpCallFailed
from agent.locales import AgentMessages
from agent.mcp.elicitation import CANCELLED, DECLINED, ask_person
from agent.mcp.errors import ENDED

MAX_QUESTION_S = 3_600.0
"""How long a call waits for a person, seconds. A later answer repeats the call, and the server asks again."""

PROGRESS_S = 1.0
"""Shortest time between two progress texts of a call, seconds. People do not read faster, and each text is an event."""

MAX_WAITS = 10
"""A call whose server reports progress may take this many times its time limit."""

MAX_SAMPLES = 10
"""Maximum number of requests to the model during one call."""


@dataclass(frozen=True, slots=True)
class McpCallKey:
    """Identifies a tool call of a thread in all runs that work on it. The id alone is not enough: models reuse ids.

    Attributes:
        thread_id: The thread, or None.
        step: LangGraph's name of the graph step.
        call_id: The id of the model's tool call.
    """

    thread_id: str | None
    step: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class McpCaller:
    """The caller of a tool.

    Attributes:
        key: The call.
        messages: The texts in the language of the run.
        report: Shows a progress text to the people who watch the run.
        can_ask: Whether the run can wait for a person's answer. False in subagents, and if the thread is not stored.
    """

    key: McpCallKey
    messages: AgentMessages
    report: Callable[[str], None]
    can_ask: bool


class McpCall:
    """A call that runs in its own task.

    A question ends the caller's run with an interrupt. The call keeps waiting in its session, and the next run joins
    it with the answer, so that the server does nothing twice. If the process has ended in the meantime, the call is
    repeated.

    Args:
        caller: The run that begins the call.

    Attributes:
        caller: The run that waits for the call.
        close_session: Closes the session that it uses.
        is_over: Whether there is a result or an error.
    """

    def __init__(self, caller: McpCaller) -> None:
        self.caller = caller
        self.close_session: Callable[[], None] = _do_nothing
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._result: CallToolResult | None = None
        self._error: Exception | None = None
        self.is_over = False
        self._question: ElicitRequestParams | None = None
        self._answer: ElicitResult | None = None
        self._asking = anyio.Lock()
        self._last_report = 0.0
        self._samples = 0
        # Interrupts of earlier questions, and of the open one. Each run repeats them in order (LangGraph's rule).
        self._settled = 0
        self._opened: tuple[ElicitRequestParams, int] | None = None

    async def run(self, work: Callable[[], Awaitable[CallToolResult]]) -> None:
        """Do the work. Its error is raised by `result`."""
        try:
            with self._scope:
                self._result = await work()
        except Exception as error:  # noqa: BLE001 - raised again in the caller's task
            self._error = error
        finally:
            self.is_over = True
            self._notify()

    def cancel(self) -> None:
        """Cancel the call, and notify the server."""
        self._scope.cancel()

    def result(self) -> CallToolResult:
        """Return the result of a call that is over, or raise its error."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise McpCallFailed(ENDED)
        return self._result

    async def wait(self, timeout_s: float) -> ElicitRequestParams | None:
        """Wait for a question from the server; None = the call is over. Each progress report restarts the time limit.

        Raises:
            TimeoutError: The server reported nothing within the time limit.
        """
        with anyio.fail_after(timeout_s * MAX_WAITS):
            while self._question is None and not self.is_over:
                changed = self._changed
                with anyio.fail_after(timeout_s):
                    await changed.wait()
        return self._question

    def answer(self, question: ElicitRequestParams, server: str, *, is_joined: bool) -> None:
        """Ask a person, and send the server the answer.

        Args:
            question: The server's question.
            server: The server's name.
            is_joined: Whether this is the first question of a run that joins the call.

        Raises:
            GraphInterrupt: The run must end and wait for the answer.
        """
        if self._opened is not None and self._opened[0] is not question:
            self._settled += self._opened[1]  # the server withdrew that question
        count = 0

        def counted(value: object) -> object:
            nonlocal count
            count += 1
            self._opened = question, count
            return interrupt(value)

        for _ in range(self._settled if is_joined else 0):
            interrupt(None)
        answer = ask_person(server, question, self.caller.messages, counted)
        self._settled += count
        self._opened = None
        if self._question is question:
            self._answer, self._question = answer, None
            self._notify()

    async def ask(self, question: ElicitRequestParams) -> ElicitResult:
        """Return a person's answer to the server's question. Declines if nobody can answer."""
        if not self.caller.can_ask:
            return DECLINED
        async with self._asking:
            self._question, self._answer = question, None
            self._notify()
            try:
                with anyio.move_on_after(MAX_QUESTION_S) as waiting:
                    while self._question is not None:
                        await self._changed.wait()
            finally:
                self._question = None
            if waiting.cancelled_caught:
                self.cancel()
            return self._taken_answer()

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Show the server's progress, at most once per `PROGRESS_S`."""
        self._notify()
        now = time.monotonic()
        if now - self._last_report >= PROGRESS_S:
            self._last_report = now
            self.caller.report(progress_text(progress, total, message))

    def may_sample(self) -> bool:
        """Return whether the server may use the model once more, and count it."""
        self._samples += 1
        return self._samples <= MAX_SAMPLES

    def _taken_answer(self) -> ElicitResult:
        return self._answer or CANCELLED

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _do_nothing() -> None:
    """Do nothing, because no session is open yet."""


def progress_text(progress: float, total: float | None, message: str | None) -> str:
    """Return a progress notification as text.

    >>> progress_text(3, 12, "Copying"), progress_text(0.5, None, None), progress_text(1, 4, "")
    ('Copying (3/12)', '0.5', '1/4')
    """
    amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
    if not message:
        return amount
    return message if total is None else f"{message} ({amount})"
