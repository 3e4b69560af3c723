"""Messages that answer what a thread waits for: found out, and turned into what the run goes on with."""

from bus.conversation.approvals import Questions
from bus.conversation.attempt import Attempt
from bus.runs.client import INTERRUPTS, RunClient
from bus.runs.questions import is_approval, resume_value
from bus.runs.replies import Reply


class Resuming:
    """Answers interrupts with what people say."""

    def __init__(self, questions: Questions, runs: RunClient) -> None:
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
        values = await self._runs.get_state(attempt.thread_id)
        waits = {str(one.get("id") or "") for one in values.get(INTERRUPTS) or []}
        awaited = [one for one in asked.question.interrupts if one.id in waits]
        attempt.resume = None
        if not awaited:
            if attempt.check:
                return None  # an earlier start of this turn may have answered it
            await self._questions.mark_answered(asked.row)
            attempt.asked = None
            return Reply(markdown=attempt.texts.press_inactive) if plan.is_press else None
        if attempt.sender.user_id != asked.asker.user_id and not plan.is_admin:
            name = asked.asker.name or asked.asker.user_id
            return Reply(markdown=attempt.texts.approval_waits.format(name=name))
        said = attempt.brought.prompt(plan.text, attempt.texts)
        attempt.resume = resume_value(awaited, said)
        mark = attempt.texts.mark_approved if is_approval(said) else attempt.texts.mark_denied
        await self._questions.remove_buttons(
            asked.row, mark if asked.question.needs_approval else ""
        )
        return None

    async def close(self, attempt: Attempt) -> None:
        """Note, when an attempt is over, that what it answered waits no more.

        One that was ended from outside counts too, once the server may have been asked: a thread shows its question
        until the step is done, and would take whatever is said next for the answer that it has already.
        """
        if attempt.asked is not None and attempt.resume is not None and attempt.check:
            await self._questions.mark_answered(attempt.asked.row)
