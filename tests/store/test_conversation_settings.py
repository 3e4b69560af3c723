"""Settings that people chose for a conversation are stored."""

from store.conversation_settings import ConversationSettings, ConversationSettingsStore
from store.conversations import ConversationKey
from store.database import Database

KEY = ConversationKey(channel="slack", workspace="T1", chat="C1", topic="171.5")
CHAT = ConversationKey(channel="slack", workspace="T1", chat="C1")


async def test_a_choice_is_kept_replaced_and_forgotten(database: Database) -> None:
    choices = ConversationSettingsStore(database)
    assert await choices.list_all() == {}
    await choices.save(KEY, ConversationSettings(model="gpt"))
    await choices.save(CHAT, ConversationSettings(agent="reviewer"))
    assert await choices.list_all() == {
        KEY: ConversationSettings(model="gpt"),
        CHAT: ConversationSettings(agent="reviewer"),
    }
    await choices.save(KEY, ConversationSettings(model="qwen", agent="reviewer", language="zh"))
    assert (await choices.list_all())[KEY] == ConversationSettings(
        model="qwen", agent="reviewer", language="zh"
    )
    await choices.save(KEY, ConversationSettings())
    assert await choices.list_all() == {CHAT: ConversationSettings(agent="reviewer")}
