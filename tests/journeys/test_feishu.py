"""All features of Feishu (streaming cards, buttons, the menu) across kills of the service."""

from pathlib import Path
from typing import Any

from bus.locales.en import ENGLISH
from gateway.playground.feishu.server import FakeFeishu, FeishuMessage
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.model_switches import ModelSwitches
from tests.journeys.service import serving, with_model

WORDS = " ".join(f"word{n}" for n in range(16))


def configured(feishu: FakeFeishu, model: FakeModelServer) -> dict[str, Any]:
    return {**with_model(model.base_url), "channels": {"feishu": feishu.settings}}


async def first_card(feishu: FakeFeishu, asked: FeishuMessage) -> FeishuMessage:
    return await feishu.wait_for(lambda: next(iter(feishu.answers_to(asked)), None))


async def test_an_answer_streams_into_its_card_and_replies_to_it_go_on(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model:
        feishu.allow_cardkit()
        async with serving(tmp_path, configured(feishu, model), "feishu"):
            model.reply(WORDS, "the second answer")
            asked = await feishu.mention("hi")
            card = await first_card(feishu, asked)
            assert "Stop" in card.buttons
            await feishu.wait_for(lambda: card.text == WORDS)
            assert len(feishu.calls("card.content")) >= 3
            assert feishu.calls("message.patch") == []
            await feishu.wait_for(lambda: not card.buttons)
            again = await feishu.mention("and again", reply_to=card.id)
            other = await first_card(feishu, again)
            await feishu.wait_for(lambda: other.text == "the second answer")
            said = " ".join(str(m.get("content")) for m in model.requests[-1].messages)
            assert WORDS in said
        assert len(feishu.answers(card.chat)) == 2
        assert feishu.violations == []


async def test_a_reply_to_an_old_answer_is_recognized_after_new(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer() as model:
        feishu.allow_cardkit()
        feishu.state.people["ou_alice"] = "Alice"
        async with serving(tmp_path, configured(feishu, model), "feishu"):
            model.reply("Take the **ferry** at nine.", "Or the bus.", "Because it is cheap.")
            asked = await feishu.dm("how do I get there?")
            first = await first_card(feishu, asked)
            await feishu.wait_for(lambda: "ferry" in first.text)
            other = await first_card(feishu, await feishu.dm("how else?"))
            await feishu.wait_for(lambda: other.text == "Or the bus.")
            await feishu.wait_for(lambda: "DONE" in asked.emojis)
            await first_card(feishu, await feishu.dm("/new"))
            again = await first_card(feishu, await feishu.dm("why?", reply_to=first.id))
            await feishu.wait_for(lambda: again.text == "Because it is cheap.")
        (request,) = [r for r in model.requests if r.last_user_text.startswith("why?")]
        assert request.last_user_text == "why?\n\n> You: Take the **ferry** at nine."
        assert "Or the bus." not in str(request.messages)
        assert feishu.violations == []


async def test_killed_while_a_card_streams_the_same_card_is_finished(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model:
        feishu.allow_cardkit()
        async with serving(tmp_path, configured(feishu, model), "feishu") as service:
            model.reply(ModelReply(text=WORDS, hang_after=4))
            asked = await feishu.dm("hi")
            card = await first_card(feishu, asked)
            await feishu.wait_for(lambda: "word1" in card.text)
            model.reply("all of it")
            await service.kill()
            await service.start()
            await service.until_connected("feishu")
            await feishu.wait_for(lambda: card.text == "all of it")
            await feishu.wait_for(lambda: asked.emojis.count("DONE"))
        assert len(feishu.answers(asked.chat)) == 1
        assert feishu.violations == []


async def test_the_stop_button_ends_the_run_and_goes(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer() as model:
        feishu.allow_cardkit()
        async with serving(tmp_path, configured(feishu, model), "feishu"):
            model.reply(ModelReply(text=WORDS, hang_after=2))
            asked = await feishu.dm("hi")
            card = await first_card(feishu, asked)
            await model.until(lambda m: len(m.requests) == 1)
            stop = dict(card.buttons["Stop"])
            stranger = await feishu.press(card, "Stop", user="ou_mallory")
            told = await feishu.wait_for(lambda: stranger.answer)
            assert told["toast"]["type"] == "warning"
            pressed = await feishu.press(card, "Stop")
            await feishu.wait_for(lambda: pressed.acked)
            await feishu.wait_for(lambda: ENGLISH.stopped in card.text)
            await feishu.wait_for(lambda: not card.buttons)
            late = await feishu.press_value(card, stop)
            told = await feishu.wait_for(lambda: late.answer)
            assert told["toast"]["content"]
        assert len(feishu.answers(asked.chat)) == 1
        assert feishu.violations == []


async def test_the_menu_runs_commands_and_a_new_person_is_greeted_once(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer() as model:
        async with serving(tmp_path, configured(feishu, model), "feishu") as service:
            await feishu.open_chat()
            hello = await feishu.wait_for(lambda: feishu.answers("oc_dm_ou_alice"))
            assert ENGLISH.hello_private in hello[0].text
            again = await feishu.open_chat()
            await feishu.wait_for(lambda: again.acked)
            await feishu.click_menu("new")
            await feishu.wait_for(
                lambda: ENGLISH.new_done in [m.text for m in feishu.answers("oc_dm_ou_alice")]
            )
            async with service.client() as client:
                await client.post("/api/channels/feishu/restart")
            await feishu.wait_for(lambda: len(feishu.past_connections) == 1)
            await feishu.wait_for(lambda: len(feishu.connections) == 1)
            await service.until_connected("feishu")
            asked = await feishu.dm("/help")
            await feishu.wait_for(lambda: feishu.answers_to(asked))
        assert len(feishu.answers("oc_dm_ou_alice")) == 3
        assert model.requests == []
        assert feishu.violations == []


async def test_files_and_words_that_are_sent_together_are_one_turn(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer() as model:
        async with serving(tmp_path, configured(feishu, model), "feishu"):
            await feishu.file("one.txt", b"the first")
            await feishu.file("two.txt", b"the second")
            asked = await feishu.dm("compare them")
            chat = asked.chat
            await feishu.wait_for(lambda: feishu.answers(chat))
            await feishu.wait_for(lambda: "compare them" in feishu.answers(chat)[0].text)
        assert len(feishu.answers(chat)) == 1
        (request,) = [r for r in model.requests if "compare them" in r.last_user_text]
        assert "one.txt" in request.last_user_text
        assert "two.txt" in request.last_user_text
        assert feishu.violations == []


async def test_a_card_that_was_withdrawn_costs_no_answer(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu, FakeModelServer(ModelSwitches(token_delay_s=0.1)) as model:
        feishu.allow_cardkit()
        async with serving(tmp_path, configured(feishu, model), "feishu"):
            model.reply(WORDS)
            asked = await feishu.dm("hi")
            card = await first_card(feishu, asked)
            await feishu.wait_for(lambda: "word1" in card.text)
            await feishu.withdraw(card)
            await feishu.wait_for(lambda: feishu.answers(asked.chat))
            await feishu.wait_for(lambda: "DONE" in asked.emojis)
            assert [answer.text for answer in feishu.answers(asked.chat)] == [WORDS]
        assert feishu.violations == []


async def test_a_long_answer_goes_on_in_further_cards_each_word_once(tmp_path: Path) -> None:
    words = [f"w{n:05}" for n in range(9000)]
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    text = " ".join(words) + "\n\n" + "\n\n".join([table] * 5)
    async with FakeFeishu() as feishu, FakeModelServer() as model:
        feishu.allow_cardkit()
        config = configured(feishu, model)
        config["channels"]["max_answer_chars"] = 100_000
        async with serving(tmp_path, config, "feishu"):
            model.reply(text)
            asked = await feishu.dm("hi")
            await feishu.wait_for(lambda: "DONE" in asked.emojis)
        cards = feishu.answers(asked.chat)
        said = "\n".join(card.text for card in cards)
        assert [said.count(word) for word in (words[0], words[4500], words[-1])] == [1, 1, 1]
        assert said.split()[:9000] == words
        assert said.count("| 1 | 2 |") == 5
        assert len(cards) >= 4
        for card in cards:
            assert card.buttons == {}
            assert not card.content["config"].get("streaming_mode")
        assert feishu.violations == []
