"""A person keeps talking: the conversation outgrows the model's context size and continues, even across kill -9."""

from pathlib import Path

from agent.middleware.visible_history import INTRODUCTION
from agent.saved_texts import CONVERSATION
from gateway.playground.slack.server import FakeSlack
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest, ToolCall, text_of
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import serving, with_model
from tests.people.slack import SlackDirectUser

WINDOW = 16_000
TURNS = 24
KILLED_AFTER = 18
FACT = "Important: the vault opens with amber-42."
ASKED = "What did I say first?"


def answer(request: ModelRequest) -> ModelReply:
    """Write weak summaries. If a person asks for the first messages, search the file that contains them."""
    said = request.last_user_text
    if "Below is the beginning of a conversation" in said:
        return ModelReply(text="They talked.")
    last = request.messages[-1]
    if last["role"] == "tool":
        return ModelReply(text=f"Found: {'Message 1 of' in text_of(last['content'])}")
    if said == ASKED:
        summary = next(text for text in request.user_texts if INTRODUCTION in text)
        path = next(word for word in summary.split() if word.startswith(CONVERSATION))
        return ModelReply(calls=(ToolCall("grep", {"path": path, "pattern": "Message 1 of"}),))
    return ModelReply(text=f"Noted: {' '.join(said.split()[:2])}.")


async def test_a_conversation_outgrows_the_window_and_goes_on(tmp_path: Path) -> None:
    switches = ModelSwitches(strict=True, max_tokens=WINDOW)
    async with FakeSlack() as slack, FakeModelServer(switches, answer=answer) as model:
        config = {
            **with_model(model.base_url),
            "summarization": {"max_input_tokens": WINDOW},
            "channels": {"slack": slack_section(slack)},
        }
        async with serving(tmp_path, config, "slack") as service:
            user = SlackDirectUser(slack)
            for number in range(1, TURNS + 1):
                fact = FACT if number == 3 else ""
                talk = f"All of item {number:03}. " * 100
                await user.send(f"Message {number} of many. {talk}\n{fact}")
                await user.wait_for_message(f"Noted: Message {number}.")
                if number == KILLED_AFTER:
                    await service.kill()
                    await service.start()
            await user.send(ASKED)
            await user.wait_for_message("Found: True")
    shown = " ".join(model.requests[-1].user_texts)
    assert "amber-42" in shown
    assert "Message 1 of" not in shown
    assert model.refusals == []


def slack_section(slack: FakeSlack) -> dict[str, object]:
    return {
        "enabled": True,
        "bot_token": slack.bot_token,
        "app_token": slack.app_token,
        "base_url": slack.base_url,
    }
