"""What people chose for a conversation is kept."""

from store.choices import Choice, Choices
from store.conversations import ConversationKey
from store.database import Database

KEY = ConversationKey(channel="slack", workspace="T1", chat="C1", topic="171.5")
CHAT = ConversationKey(channel="slack", workspace="T1", chat="C1")


async def test_a_choice_is_kept_replaced_and_forgotten(database: Database) -> None:
    choices = Choices(database)
    assert await choices.all() == {}
    await choices.set(KEY, Choice(model="gpt"))
    await choices.set(CHAT, Choice(agent="reviewer"))
    assert await choices.all() == {KEY: Choice(model="gpt"), CHAT: Choice(agent="reviewer")}
    await choices.set(KEY, Choice(model="qwen", agent="reviewer", language="zh"))
    assert (await choices.all())[KEY] == Choice(model="qwen", agent="reviewer", language="zh")
    await choices.set(KEY, Choice())
    assert await choices.all() == {CHAT: Choice(agent="reviewer")}
