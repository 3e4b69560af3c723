"""All features of Telegram (drafts, growing answers, a stop, albums, a migrating group), each across a kill -9."""

from pathlib import Path
from typing import Any

from gateway.playground.telegram.chats import TelegramUpload
from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import serving, with_model

GROUP = -1_001_234_567_890
OLD_GROUP = -4001
WORDS = " ".join(f"word{n}" for n in range(30))


def config(telegram: TelegramServer, model: FakeModelServer, **more: object) -> dict[str, Any]:
    section = {**telegram.settings, "group_policy": "mention", **more}
    return {**with_model(model.base_url), "channels": {"telegram": section}}


def said(telegram: TelegramServer, chat: int) -> list[str]:
    return [answer.text for answer in telegram.answers(chat)]


async def test_answers_grow_and_each_word_is_in_one_message(tmp_path: Path) -> None:
    async with (
        TelegramServer() as telegram,
        FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model,
    ):
        async with serving(tmp_path, config(telegram, model, streaming=True), "telegram"):
            model.reply(WORDS, WORDS)
            telegram.dm("tell me")
            telegram.mention(GROUP, "tell us")
            await telegram.wait_for(lambda: said(telegram, 1001) == [WORDS])
            await telegram.wait_for(lambda: said(telegram, GROUP) == [WORDS])
            await telegram.wait_for(lambda: telegram.labels(GROUP) == [])
            grown = [draft.text for draft in telegram.drafts if draft.text]
            assert len(grown) >= 2
            assert all(WORDS.startswith(text) for text in grown)
            (answer,) = telegram.answers(GROUP)
            assert len(answer.history) >= 1
            model.reply(ModelReply(text=WORDS, hang_after=3))
            telegram.dm("once more")
            await telegram.wait_for(lambda: telegram.drafts[-1].text == "word0 word1 word2")
            telegram.stop_draft()
            await model.until(lambda m: m.requests[-1].closed_by_client)
        assert telegram.violations == []


async def test_an_album_over_a_kill_is_one_answer(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, FakeModelServer(answer=_files) as model:
        async with serving(tmp_path, config(telegram, model), "telegram") as service:
            _send(telegram, "one.txt", "compare")
            await telegram.wait_for(lambda: telegram.backlog == 0)
            await service.kill()
            _send(telegram, "two.txt")
            await service.start()
            await telegram.wait_for(lambda: said(telegram, 1001))
            telegram.dm("is that all?")
            await telegram.wait_for(lambda: len(said(telegram, 1001)) == 2)
        assert said(telegram, 1001) == ["I see one.txt and two.txt.", "I see nothing."]
        assert telegram.violations == []


async def test_a_paste_and_forwards_over_kills_are_one_answer_each(tmp_path: Path) -> None:
    paste = " ".join(f"word{number:04}" for number in range(600))
    cut = paste.rindex(" ", 0, 4096)
    async with TelegramServer() as telegram, FakeModelServer() as model:
        async with serving(tmp_path, config(telegram, model), "telegram") as service:
            telegram.dm(paste[:cut])
            await telegram.wait_for(lambda: telegram.backlog == 0)
            await service.kill()
            telegram.dm(paste[cut + 1 :])
            await service.start()
            await telegram.wait_for(lambda: said(telegram, 1001))
            assert len(model.requests) == 1
            assert "word0000" in model.requests[0].last_user_text
            assert "word0599" in model.requests[0].last_user_text
            await service.until_recorded()
            model.answer = _both
            telegram.dm("who is right?")
            await model.until(lambda m: len(m.requests) == 2)
            await service.kill()
            for words, author in (("me", "Ann"), ("no, me", "Bob")):
                origin = {"type": "hidden_user", "date": 1, "sender_user_name": author}
                telegram.dm(words, extra={"forward_origin": origin})
            await service.start()
            await telegram.wait_for(lambda: "Both are." in said(telegram, 1001))
            telegram.dm("is that all?")
            await telegram.wait_for(lambda: len(said(telegram, 1001)) == 3)
        assert telegram.violations == []


async def test_a_group_that_moves_over_a_kill_keeps_its_conversation(tmp_path: Path) -> None:
    async with TelegramServer() as telegram, FakeModelServer() as model:
        async with serving(tmp_path, config(telegram, model), "telegram") as service:
            model.reply(ModelReply(text="never to be finished", hang_after=2))
            telegram.mention(OLD_GROUP, "the secret is 4711")
            await model.until(lambda m: len(m.requests) == 1)
            telegram.migrate(OLD_GROUP, GROUP)
            await telegram.wait_for(lambda: telegram.backlog == 0)
            await service.kill()
            await service.start()
            await telegram.wait_for(lambda: said(telegram, GROUP))
            (answer,) = telegram.answers(GROUP)
            telegram.say(GROUP, "what was it?", reply_to=answer.message_id)
            await telegram.wait_for(lambda: len(said(telegram, GROUP)) == 2)
        assert any("4711" in str(m["content"]) for m in model.requests[-1].messages)
        assert telegram.violations == []


def _send(telegram: TelegramServer, name: str, caption: str = "") -> None:
    kept = telegram.keep("document", TelegramUpload(name=name, content=b"words", mime="text/plain"))
    telegram.say(1001, caption, file=kept, extra={"media_group_id": "album"})


def _both(request: ModelRequest) -> ModelReply:
    text = request.last_user_text
    if "is that all?" in text:
        return ModelReply(text="Yes.")
    has_both = "> Ann: me" in text and "> Bob: no, me" in text
    return ModelReply(text="Both are.") if has_both else ModelReply(text="...", hang_after=1)


def _files(request: ModelRequest) -> ModelReply:
    text = request.last_user_text
    current = text.partition("</uploaded_files>")[0] if "<uploaded_files>" in text else ""
    found = [name for name in ("one.txt", "two.txt") if name in current]
    if "is that all?" in text:
        return ModelReply(text="I see nothing.")
    return ModelReply(text=f"I see {' and '.join(found)}.")
