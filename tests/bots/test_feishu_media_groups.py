"""What was sent together is one message (DeerFlow #3753)."""

from dataclasses import replace

from bots.feishu.media_groups import FeishuMediaGroups
from bus.messages import Attachment, ConversationKey, InboundMessage, ReplyTarget, Sender

FILE = InboundMessage(
    event_id="ev_1",
    message_id="om_1",
    key=ConversationKey(channel="feishu", workspace="t1", chat="oc_1", topic=""),
    reply_target=ReplyTarget(chat="oc_1", reply_to="om_1"),
    sender=Sender(user_id="ou_alice"),
    text="",
    is_private=True,
    is_addressed=True,
    attachments=(Attachment(name="a.pdf"),),
    sent_at=100.0,
)


def file(name: str, at: float, **changes: object) -> InboundMessage:
    return replace(FILE, message_id=name, sent_at=at, **changes)  # type: ignore[arg-type]


def words(text: str, at: float) -> InboundMessage:
    return file("om_words", at, text=text, attachments=())


def test_files_that_follow_each_other_are_together() -> None:
    bundles = FeishuMediaGroups(lambda: 0.0)
    found = [bundles.assign_album(file(f"om_{n}", 100 + n * 0.6)).album for n in range(4)]
    assert found == ["om_0"] * 4


def test_a_later_file_starts_another_album() -> None:
    bundles = FeishuMediaGroups(lambda: 0.0)
    assert bundles.assign_album(file("om_1", 100.0)).album == "om_1"
    assert bundles.assign_album(file("om_2", 103.0)).album == "om_2"


def test_words_right_after_files_belong_to_them_and_end_the_bundle() -> None:
    bundles = FeishuMediaGroups(lambda: 0.0)
    bundles.assign_album(file("om_1", 100.0))
    assert bundles.assign_album(words("what is this?", 100.4)).album == "om_1"
    assert bundles.assign_album(words("and?", 100.6)).album == ""
    assert bundles.assign_album(file("om_2", 100.8)).album == "om_2"


def test_words_alone_and_commands_are_by_themselves() -> None:
    bundles = FeishuMediaGroups(lambda: 0.0)
    assert bundles.assign_album(words("hello", 100.0)).album == ""
    bundles.assign_album(file("om_1", 101.0))
    assert bundles.assign_album(words("/new", 101.1)).album == ""


def test_others_and_other_topics_are_no_company() -> None:
    bundles = FeishuMediaGroups(lambda: 0.0)
    bundles.assign_album(file("om_1", 100.0))
    other = file("om_2", 100.1, sender=Sender(user_id="ou_bob"))
    assert bundles.assign_album(other).album == "om_2"
    topic = file(
        "om_3", 100.2, reply_target=ReplyTarget(chat="oc_1", thread="omt_1", reply_to="om_3")
    )
    assert bundles.assign_album(topic).album == "om_3"


def test_without_the_platforms_clock_the_arrival_counts() -> None:
    moments = iter([0.0, 0.5, 5.0])
    bundles = FeishuMediaGroups(lambda: next(moments))
    found = [
        bundles.assign_album(replace(file(f"om_{n}", 0.0), sent_at=None)).album for n in range(3)
    ]
    assert found == ["om_0", "om_0", "om_2"]
