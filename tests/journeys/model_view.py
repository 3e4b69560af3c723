"""Creates the examples in docs/explanation/what-the-model-sees.md with the code of the bus and the agent.

`python -m tests.journeys.model_view` writes them into the page.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

from bots.slack.thread_history import EARLIER_HEADING
from bots.text.quotations import quotation
from bus.config import BusConfig, ChannelPolicy
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender
from bus.runs.requests import AgentRunRequest, human_message
from bus.settings.resolver import SettingsResolver
from bus.settings.sessions import SessionResolver
from gateway.runtime.request import parse_messages
from store.config import StoreConfig
from store.conversation_settings import ConversationSettingsStore
from store.database import Database
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.fakes.migrated import place_database
from tests.fakes.scripted import ScriptedChatModel

PAGE = Path(__file__).parents[2] / "docs/explanation/what-the-model-sees.md"
BEGIN = "<!-- The examples: `python -m tests.journeys.model_view` writes them. -->"
END = "<!-- End of the examples. -->"

FILE = {"filename": "offer.csv", "size": 2048, "path": "/mnt/user-data/uploads/offer.csv"}

ANN = {"slack": "U0A1B2C3D", "telegram": "1001", "feishu": "ou_7d8a6e6d", "terminal": "local"}
TITLES = {
    "slack": ("release", ""),
    "telegram": ("Release team", "Offers"),
    "feishu": ("Release team", ""),
}
NAMES = {"slack": "Slack", "telegram": "Telegram", "feishu": "Feishu", "terminal": "Terminal"}
HEADINGS = {"slack": EARLIER_HEADING}
"""On Slack, a reply is a message in a thread."""


def example(platform: str, *, is_private: bool) -> InboundMessage:
    """Return Ann's reply to an answer of the bot, with a file."""
    answer = quotation("The total is 41.", "You", heading=HEADINGS.get(platform, ""))
    title, topic = ("", "") if is_private else TITLES[platform]
    return InboundMessage(
        event_id="e1",
        message_id="m1",
        key=ConversationKey(channel=platform, workspace="w", chat="c"),
        reply_target=ReplyTarget(chat="c", language="en"),
        sender=Sender(user_id=ANN[platform], name="" if platform == "terminal" else "Ann Lee"),
        text="Is this the newest offer?",
        quoted="" if platform == "terminal" else answer,
        is_private=is_private,
        is_addressed=True,
        chat_title=title,
        topic_title=topic,
    )


def on_the_wire(inbound: InboundMessage, assistant_id: str = "lead_agent") -> dict[str, Any]:
    """Return the human message that the bus sends to the agent's server."""
    request = AgentRunRequest(
        thread_id="t1",
        assistant_id=assistant_id,
        message_id=f"{inbound.key.channel}:{inbound.event_id}",
        inbound=inbound,
        text=inbound.prompt,
        files=(FILE,),
    )
    return human_message(request, {})


class Examples:
    """Shows the input of the model and of a user's own graph."""

    def __init__(
        self, harness: AgentHarness, model: ScriptedChatModel, settings: SettingsResolver
    ) -> None:
        self._harness = harness
        self._model = model
        policies = {name: ChannelPolicy(platform=name) for name in NAMES}
        self._sessions = SessionResolver(BusConfig(), policies, settings)

    def context(self, inbound: InboundMessage) -> Mapping[str, Any]:
        """Return the context of a message's run."""
        return self._sessions.resolve(inbound).context

    async def request(self, inbound: InboundMessage) -> tuple[str, str]:
        """Return the section of the system prompt and the message that the model gets."""
        thread = f"{inbound.key.channel}-{inbound.chat_type}"
        uploads = self._harness.services.folders.folders(thread).uploads
        uploads.mkdir(parents=True)
        (uploads / FILE["filename"]).write_bytes(b"x" * FILE["size"])  # type: ignore[operator]
        [message] = parse_messages([on_the_wire(inbound)])
        assert isinstance(message, HumanMessage)
        chat = self.context(inbound)["chat"]
        await self._harness.say(message, thread=thread, chat=chat)
        system, *_, said = self._model.prompts[-1]
        section = system.text[system.text.index("<chat>") : system.text.index("</chat>")]
        return f"{section}</chat>", said.text

    async def text(self) -> str:
        """Return all examples, as Markdown."""
        parts: list[str] = []
        for platform, name in NAMES.items():
            parts.append(f"## {name}")
            for is_private in (True, False) if platform in TITLES else (True,):
                kind = "a private chat" if is_private else "a group"
                section, said = await self.request(example(platform, is_private=is_private))
                parts += [f"In {kind}, at the end of the system prompt:", _block(section)]
                parts += ["The message:", _block(said)]
        inbound = example("telegram", is_private=False)
        parts += [
            "## Your own graph",
            "The message in the state of a graph, from the same Telegram group:",
        ]
        parts.append(_block(json.dumps(on_the_wire(inbound, "support"), indent=2), "json"))
        shown = {key: self.context(inbound)[key] for key in ("chat", "user_id", "channel_user_id")}
        parts += [
            "The runtime context contains, among other keys:",
            _block(json.dumps(shown, indent=2), "json"),
        ]
        return "\n\n".join(parts)


@asynccontextmanager
async def open_examples(home: Path) -> AsyncIterator[Examples]:
    """Open an agent in a data folder."""
    model = ScriptedChatModel.playing(*["I look."] * 20)
    async with (
        Database.open(StoreConfig(), place_database(home)) as database,
        open_agent(home, model) as harness,
    ):
        settings = SettingsResolver(ConversationSettingsStore(database))
        yield Examples(harness, model, settings)


def with_examples(page: str, examples: str) -> str:
    """Return the page's text with the given examples."""
    head, _, rest = page.partition(BEGIN)
    tail = rest.partition(END)[2]
    return f"{head}{BEGIN}\n\n{examples}\n\n{END}{tail}"


def _block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


async def main() -> None:
    """Write the examples into the page."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_examples(Path(folder)) as examples:
            PAGE.write_text(with_examples(PAGE.read_text("utf-8"), await examples.text()), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
