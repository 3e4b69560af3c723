"""Messages that answer what a thread waits for: found out, and turned into what the run goes on with."""

from bus.conversation.attempt import Attempt
from bus.conversation.questions import Questions
from bus.runs.asking import approves, resumption
from bus.runs.replies import Reply
from bus.runs.wire import INTERRUPTS, Runs


class Resuming:
    """Answers interrupts with what people say."""

    def __init__(self, questions: Questions, runs: Runs) -> None:
        self._questions = questions
        self._runs = runs

    async def look(self, attempt: Attempt) -> Reply | None:
        """Let a turn resume its thread's run if that waits for what was said.

        Returns what to say instead, where the sender may not decide, or a button was pressed in vain.

        Raises:
            RunError: the server cannot be asked.
        """
        asked, plan = attempt.asked, attempt.plan
        if asked is None:
            return None
        values = await self._runs.state(attempt.thread_id)
        waits = {str(one.get("id") or "") for one in values.get(INTERRUPTS) or []}
        awaited = [one for one in asked.question.awaited if one.id in waits]
        attempt.resume = None
        if not awaited:
            if attempt.check:
                return None  # an earlier start of this turn may have answered it
            await self._questions.close(asked.row)
            attempt.asked = None
            return Reply(markdown=attempt.texts.press_inactive) if plan.is_press else None
        if attempt.sender.user_id != asked.asker.user_id and not plan.is_admin:
            name = asked.asker.name or asked.asker.user_id
            return Reply(markdown=attempt.texts.approval_waits.format(name=name))
        said = attempt.brought.said_with(plan.text, attempt.texts)
        attempt.resume = resumption(awaited, said)
        mark = attempt.texts.mark_approved if approves(said) else attempt.texts.mark_denied
        await self._questions.settle(asked.row, mark if asked.question.approval else "")
        return None

    async def close(self, attempt: Attempt) -> None:
        """Note, when an attempt is over, that what it answered waits no more.

        One that was ended from outside counts too, once the server may have been asked: a thread shows its question
        until the step is done, and would take whatever is said next for the answer that it has already.
        """
        if attempt.asked is not None and attempt.resume is not None and attempt.check:
            await self._questions.close(attempt.asked.row)
