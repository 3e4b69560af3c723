"""Targets: events of the platforms, from bytes to messages of the bus; and webhooks."""

import base64
import hashlib
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from Crypto.Cipher import AES
from Crypto.Util.Padding import pad

from bots.common.events import IgnoredEvent
from bots.common.webhooks import WebhookRejected, WebhookRequest, parse_json_object
from bots.feishu.api import FeishuBot
from bots.feishu.content import UnsupportedContent, read_message
from bots.feishu.encryption import sign_request as sign_feishu
from bots.feishu.frame_assembler import FrameAssembler
from bots.feishu.inbound import parse_event as parse_feishu
from bots.feishu.json_node import JsonNode, parse_json
from bots.feishu.quotes import quote_message
from bots.feishu.sdk import Frame, FrameCodec, FrameError
from bots.feishu.webhook import FeishuWebhookSecrets
from bots.slack.buttons import parse_button_press
from bots.slack.inbound import parse_event as parse_slack
from bots.slack.inbound import parse_slash_command
from bots.slack.payload import SlackIdentity, find_installation
from bots.slack.users import classify
from bots.telegram.events import parse_update
from bots.telegram.identity import TelegramIdentity
from bots.telegram.payload import UNREADABLE
from bots.telegram.receiver import update_id_of
from bots.telegram.update_queue import chat_of
from bus.inbound.clean import clean_message
from bus.messages import InboundMessage, decode_inbound, encode_inbound
from tests.lab.fuzz.mutation import damage_bytes, damage_json, to_json
from tests.lab.fuzz.runner import Target

SLACK = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT", name="parley")
TELEGRAM = TelegramIdentity(user_id=700700, username="Parley_Bot")
FEISHU = FeishuBot(open_id="ou_0bot", name="Parley")
COMMANDS = {"help", "new", "stop"}
NOW = 1_790_000_000.0


def slack_body(**event: object) -> dict[str, Any]:
    said = {
        "type": "message",
        "user": "U1",
        "channel": "C1",
        "ts": "10.000100",
        "text": "<@UBOT> hi",
    }
    return {
        "team_id": "T1", "event_id": "Ev1", "type": "event_callback", "is_ext_shared_channel": False,
        "authorizations": [{"team_id": "T1", "enterprise_id": "E1", "is_enterprise_install": False}],
        "event": {**said, **event},
    }  # fmt: skip


FILE = {
    "id": "F1",
    "name": "a.pdf",
    "mimetype": "application/pdf",
    "size": 9,
    "url_private_download": "https://f/a",
}
SHOWN = [
    {"type": "rich_text", "elements": [
        {"type": "rich_text_section", "elements": [
            {"type": "user", "user_id": "U2", "style": {"bold": True}},
            {"type": "text", "text": " hi", "style": {"code": True}},
            {"type": "emoji", "name": "x", "unicode": "1f44b"},
            {"type": "date", "timestamp": 5, "format": "{date}"}, {"type": "link", "url": "https://x", "text": "y"}]},
        {"type": "rich_text_list", "style": "ordered", "indent": 1, "offset": 2, "elements": [
            {"type": "rich_text_section", "elements": [{"type": "text", "text": "one"}]}]},
        {"type": "rich_text_preformatted", "language": "py", "elements": [{"type": "text", "text": "a`b"}]}]},
    {"type": "section", "text": {"type": "mrkdwn", "text": "*a* <#C1>"}, "accessory": {
        "type": "static_select", "options": [{"text": {"type": "plain_text", "text": "o"}, "value": "1"}]}},
    {"type": "table", "rows": [[{"type": "raw_text", "text": "a"}, {"type": "raw_number", "value": 1}]]},
    {"type": "data_visualization", "title": "t", "chart": {"type": "bar", "axis_config": {"categories": ["a"]},
        "series": [{"name": "s", "data": [{"label": "a", "value": 1}]}]}},
    {"type": "container", "title": {"type": "plain_text", "text": "c"}, "child_blocks": [
        {"type": "image", "alt_text": "i", "slack_file": {"id": "F3"}}]},
    {"type": "plan", "title": "p", "tasks": [{"task_id": "1", "title": "t", "status": "complete"}]},
]  # fmt: skip
SHARED = {
    "is_share": True,
    "author_id": "U3",
    "author_name": "Bob",
    "text": "x",
    "fallback": "f",
    "ts": "1.5",
    "title": "T",
    "fields": [{"title": "a", "value": "b"}],
    "actions": [{"type": "button", "text": "go"}],
    "message_blocks": [{"message": {"blocks": SHOWN}}],
    "files": [FILE],
    "attachments": [{"text": "in"}],
}
CLIP = FILE | {
    "subtype": "slack_audio",
    "transcription": {"preview": {"content": "hi", "has_more": True}},
}
SLACK_EVENTS = [
    slack_body(blocks=SHOWN, attachments=[SHARED], files=[CLIP, FILE | {"mode": "quip", "title": "t"}]),
    slack_body(bot_id="B2", blocks=SHOWN, attachments=[{**SHARED, "is_share": False, "blocks": SHOWN}]),
    slack_body(),
    slack_body(type="app_mention", thread_ts="5.000001", parent_user_id="UBOT"),
    slack_body(subtype="file_share", files=[FILE], channel_type="im", client_msg_id="m", user_team="T2"),
    slack_body(subtype="bot_message", bot_id="B2", bot_profile={"name": "b"}, blocks=[{"type": "rich_text"}]),
    slack_body(subtype="message_changed", message={"text": "new", "ts": "1.1", "user": "U1", "files": [FILE],
               "edited": {"user": "U1", "ts": "2"}, "blocks": SHOWN}, previous_message={"text": "old", "ts": "1.1"}),
    slack_body(subtype="message_deleted", deleted_ts="1.1", previous_message={"ts": "1.1", "user": "U1"}),
    slack_body(type="assistant_thread_started", assistant_thread={"channel_id": "D1", "user_id": "U1",
               "thread_ts": "1.1", "context": {"channel_id": "C1"}}),
    slack_body(type="app_home_opened", tab="messages"),
    slack_body(type="agent_session_stopped", message_ts=["1.1"], session={"thread_ts": "1.1"}),
    slack_body(type="tokens_revoked", tokens={"oauth": ["U1"], "bot": ["UBOT"]}),
    {"command": "/parley", "text": "new <@U2|bo>", "channel_id": "C1", "user_id": "U1", "trigger_id": "t",
     "user_name": "al", "response_url": "https://r", "team_id": "T1", "enterprise_id": None},
    {"type": "block_actions", "user": {"id": "U1", "team_id": "T1", "username": "al"}, "team": {"id": "T1"},
     "channel": {"id": "C1"}, "container": {"message_ts": "1.1", "channel_id": "C1", "thread_ts": "1.0"},
     "message": {"ts": "1.1", "thread_ts": "1.0"}, "response_url": "https://r", "trigger_id": "x",
     "actions": [{"action_id": "parley.0", "value": "option:7:1", "action_ts": "3.3", "type": "button"}]},
    {"id": "U1", "team_id": "T1", "is_bot": False, "is_restricted": True, "deleted": False,
     "enterprise_user": {"teams": ["T1"]}, "profile": {"display_name": "Al"}, "tz": "Europe/Berlin", "locale": "en-US"},
]  # fmt: skip

ALICE = {"id": 1001, "is_bot": False, "first_name": "Alice", "language_code": "de"}
PRIVATE = {"id": 1001, "type": "private", "first_name": "Alice"}
FORUM = {"id": -1001234567890, "type": "supergroup", "title": "Team", "is_forum": True}


def telegram_message(**fields: object) -> dict[str, Any]:
    return {
        "message_id": 55,
        "date": int(NOW),
        "chat": PRIVATE,
        "from": ALICE,
        "text": "hi",
        **fields,
    }


ENTITIES = [{"type": "mention", "offset": 0, "length": 11}, {"type": "bot_command", "offset": 12, "length": 4},
            {"type": "text_mention", "offset": 1, "length": 2, "user": ALICE},
            {"type": "custom_emoji", "offset": 3, "length": 9, "custom_emoji_id": "5"}]  # fmt: skip
PHOTO = {"file_id": "p", "file_unique_id": "q", "width": 1, "height": 1, "file_size": 10}
TELEGRAM_UPDATES = [
    {"update_id": 9, "message": telegram_message()},
    {"update_id": 9, "message": telegram_message(chat=FORUM, text="@Parley_Bot /new x", entities=ENTITIES,
     message_thread_id=40, is_topic_message=True, reply_to_message=telegram_message(chat=FORUM))},
    {"update_id": 9, "message": telegram_message(photo=[PHOTO], caption="see", caption_entities=ENTITIES,
     media_group_id="g", document={"file_id": "d", "file_unique_id": "e", "file_name": "a/../b", "mime_type": "x/y"})},
    {"update_id": 9, "message": telegram_message(voice={"file_id": "v", "file_unique_id": "w", "duration": 3},
     forward_origin={"type": "user", "date": 1, "sender_user": ALICE}, sender_chat=FORUM)},
    {"update_id": 9, "message": telegram_message(migrate_to_chat_id=-100,
     chat={"id": -4, "type": "group", "title": "x"})},
    {"update_id": 9, "message": telegram_message(
     reply_to_message=telegram_message(poll={"question": "q", "options": [{"text": "a", "media": {"photo": [PHOTO]}}]}),
     checklist={"title": "t", "tasks": [{"id": 1, "text": "x", "completed_by_user": ALICE}]},
     quote={"text": "hi", "is_manual": True, "entities": ENTITIES})},
    {"update_id": 9, "message": telegram_message(
     external_reply={"origin": {"type": "user", "sender_user": ALICE}, "venue": {"location": {"latitude": 1.0,
      "longitude": 2.0}, "title": "z", "address": "s"}},
     rich_message={"blocks": [{"type": "paragraph", "text": ["a", {"type": "url", "text": "b", "url": "https://x"}]},
      {"type": "table", "cells": [[{"text": "c"}]]}, {"type": "list", "items": [{"blocks": []}]}]})},
    {"update_id": 9, "edited_message": telegram_message(edit_date=int(NOW) + 1, text="better")},
    {"update_id": 9, "my_chat_member": {"chat": FORUM, "from": ALICE, "date": 1,
     "old_chat_member": {"user": {**ALICE, "id": 700700}, "status": "left"},
     "new_chat_member": {"user": {**ALICE, "id": 700700}, "status": "member"}}},
    {"update_id": 9, "callback_query": {"id": "q1", "from": ALICE, "chat_instance": "1", "data": "option:7:1",
     "message": telegram_message(chat=FORUM)}},
    {"update_id": 9, "stopped_message_generation": {"chat": PRIVATE, "draft_id": 5, "message_thread_id": 4}},
    {"update_id": 9, "poll": {"id": "1"}},
]  # fmt: skip


def feishu_event(kind: str, **event: object) -> dict[str, Any]:
    header = {
        "event_id": "ev_1",
        "event_type": kind,
        "tenant_key": "t1",
        "create_time": "1700000000123",
        "token": "tok",
    }
    return {"schema": "2.0", "header": header, "event": event}


def feishu_message(kind: str, content: object, **fields: object) -> dict[str, Any]:
    sender = {
        "sender_id": {"open_id": "ou_alice", "user_id": "a"},
        "sender_type": "user",
        "tenant_key": "t1",
    }
    mentions = [
        {"key": "@_user_1", "id": {"open_id": "ou_0bot"}, "name": "Parley", "tenant_key": "t1"}
    ]
    message = {"message_id": "om_1", "chat_id": "oc_1", "chat_type": "group", "message_type": kind,
               "mentions": mentions, "content": json.dumps(content), "create_time": "1700000000123",
               "root_id": "om_0", "thread_id": "omt"}  # fmt: skip
    return feishu_event("im.message.receive_v1", sender=sender, message={**message, **fields})


POST = {"title": "t", "content": [[{"tag": "text", "text": "a"}, {"tag": "at", "user_id": "@_user_1"},
        {"tag": "a", "href": "https://x", "text": "b"}, {"tag": "img", "image_key": "i"},
        {"tag": "media", "file_key": "f"}, {"tag": "md", "text": "*c*"}]]}  # fmt: skip
CARD = {"schema": "2.0", "header": {"title": {"tag": "plain_text", "content": "t"}},
        "body": {"elements": [
            {"tag": "markdown", "content": "**a** <at id=ou_1></at> `&lt;` &lt;"},
            {"tag": "column_set", "columns": [{"tag": "column", "elements": [{"tag": "hr"}]}]},
            {"tag": "table", "columns": [{"name": "n"}], "rows": [{"n": 1}, {"n": [{"text": "x"}]}]},
            {"tag": "chart", "chart_spec": {"title": {"text": "c"}, "data": {"values": [{"x": 1}]}}},
            {"tag": "select_static", "options": [{"text": {"tag": "plain_text", "content": "o"}}]},
            {"tag": "button", "text": {"tag": "plain_text", "content": "b"}, "behaviors": [{"default_url": "u"}]},
        ]}}  # fmt: skip
FEISHU_EVENTS = [
    feishu_message("text", {"text": "@_user_1 hi"}),
    feishu_message("text", {"text": "/new@Parley x"}, chat_type="p2p"),
    feishu_message("post", {"zh_cn": POST, "en_us": POST}),
    feishu_message("post", POST),
    feishu_message("file", {"file_key": "f", "file_name": "../a.pdf", "file_size": 7}),
    feishu_message("image", {"image_key": "i"}),
    feishu_message("interactive", {"title": "card", "elements": [[{"tag": "text", "text": "x"}]]}),
    feishu_message("interactive", {"user_dsl": json.dumps(CARD), "title": None}),
    feishu_message("interactive", CARD, parent_id="om_0"),
    feishu_message("todo", {"summary": POST, "due_time": "1700000000123"}),
    feishu_message("vote", {"topic": "t", "options": ["a", "b"]}),
    feishu_message("system", {"template": "{a} and {b}", "a": ["x"], "b": {"text": "y"}}),
    feishu_message("merge_forward", {"content": "Merged and Forwarded Message"}),
    feishu_event("im.message.recalled_v1", message_id="om_1", chat_id="oc_1", recall_time="1"),
    feishu_event("im.chat.member.bot.added_v1", chat_id="oc_1", operator_id={"open_id": "ou_a"}),
    feishu_event("application.bot.menu_v6", event_key="/new", operator={"operator_id": {"open_id": "ou_a"}}),
    feishu_event("card.action.trigger", operator={"open_id": "ou_a", "tenant_key": "t1"}, token="c",
                 action={"value": {"parley": "option:7:1", "private": True}, "tag": "button"},
                 context={"open_message_id": "om_1", "open_chat_id": "oc_1"}),
]  # fmt: skip
FORWARDED = [
    {"msg_type": "merge_forward", "message_id": "om_1"},
    {"msg_type": "text", "sender": {"id": "ou_1"}, "create_time": "1700000000123",
     "body": {"content": '{"text": "@_user_1 hi"}'},
     "mentions": [{"key": "@_user_1", "name": "Bo"}]},
    {"msg_type": "post", "sender": {"id": "ou_2"}, "body": {"content": json.dumps(POST)}},
    {"msg_type": "interactive", "sender": {"id": "cli_2", "sender_type": "app"},
     "body": {"content": json.dumps(CARD)}, "upper_message_id": "om_1"},
]  # fmt: skip


def meaning(found: object) -> str:
    """Return an outcome. An accepted message must fit into the journal."""
    if isinstance(found, IgnoredEvent):
        assert len(found.reason) < 100
        return "ignored"
    if isinstance(found, InboundMessage):
        kept = clean_message(found)
        body = encode_inbound(kept)
        body.encode()
        assert decode_inbound(body) == kept
        return "message"
    return "other"


def slack_events(rng: Random) -> str:
    body = damage_json(rng, rng.choice(SLACK_EVENTS), SLACK_EVENTS)
    if not isinstance(body, Mapping):
        return "refused"  # Bolt passes only objects
    find_installation(body, ["T1", "E1"])
    classify(body, SLACK)
    parse_button_press(body, SLACK)
    meaning(parse_slash_command(body, SLACK))
    return meaning(parse_slack(body, SLACK))


def telegram_updates(rng: Random) -> str:
    raw = damage_json(rng, rng.choice(TELEGRAM_UPDATES), TELEGRAM_UPDATES)
    if not isinstance(raw, dict) or update_id_of(raw) is None:
        return "refused"
    chat_of(raw)
    try:
        return meaning(parse_update(raw, TELEGRAM, COMMANDS))
    except UNREADABLE:
        return "refused"


def feishu_page(items: list[JsonNode]) -> str:
    """Read messages from the API as forwarded messages, and as a message that a person replied to."""
    try:
        read = read_message(items[0], names={}, held=items[1:]) if items else None
    except UnsupportedContent:
        return "refused"
    quote_message(items, {}).text.encode()
    return "message" if read and read.text else "ignored"


def feishu_events(rng: Random) -> str:
    if rng.random() < 0.2:
        items = damage_json(rng, FORWARDED, FEISHU_EVENTS)
        return feishu_page([JsonNode(item) for item in items] if isinstance(items, list) else [])
    data = to_json(damage_json(rng, rng.choice(FEISHU_EVENTS), FEISHU_EVENTS))
    data = damage_bytes(rng, data) if rng.random() < 0.3 else data
    return meaning(parse_feishu(JsonNode(parse_json(data)), FEISHU))


CODEC = FrameCodec()
FRAMES = [
    CODEC.encode(
        Frame(
            method=1,
            headers={"type": "event", "message_id": "m", "sum": "2", "seq": "0"},
            payload=b"{}",
        )
    ),
    CODEC.encode(
        Frame(method=0, headers={"type": "pong"}, payload=b'{"PingInterval": 120}', log_id_new="x")
    ),
]


def feishu_frames(rng: Random) -> str:
    assembler = FrameAssembler(keep_s=10)
    try:
        frames = [CODEC.decode(damage_bytes(rng, rng.choice(FRAMES))) for _ in range(2)]
    except FrameError:
        return "refused"
    whole = [assembler.add(frame) for frame in frames]
    return "accepted" if any(part is not None for part in whole) else "incomplete"


SECRETS = FeishuWebhookSecrets(encrypt_key="k" * 20, verification_token="tok")


def sealed(rng: Random, plain: bytes) -> bytes:
    """Encrypt as Feishu does."""
    iv = rng.randbytes(16)
    cipher = AES.new(hashlib.sha256(b"k" * 20).digest(), AES.MODE_CBC, iv=iv)
    return iv + cipher.encrypt(pad(plain, 16))


def feishu_webhooks(rng: Random) -> str:
    """Handle bodies with and without a valid signature. All must be refused."""
    body = to_json(damage_json(rng, rng.choice(FEISHU_EVENTS)))
    if (kind := rng.random()) < 0.5:
        body = json.dumps({"encrypt": base64.b64encode(sealed(rng, body)).decode()}).encode()
    elif kind < 0.7:
        body = json.dumps(
            {"encrypt": base64.b64encode(hashlib.sha256(body).digest() * 3).decode()}
        ).encode()
    body = damage_bytes(rng, body) if rng.random() < 0.5 else body
    headers = {
        "x-lark-request-timestamp": rng.choice((str(int(NOW)), "0", "x", "9" * 30, "\ud800")),
        "x-lark-request-nonce": rng.choice(("n", "", "\ud800")),
    }
    right = sign_feishu(
        "k" * 20, headers["x-lark-request-timestamp"], headers["x-lark-request-nonce"], body
    )
    headers["x-lark-signature"] = rng.choice((right, right, right.upper(), "", "\ud800"))
    request = WebhookRequest(headers=headers, body=body)
    try:
        SECRETS.verify_signature(request, NOW)
        SECRETS.decrypt_event(body)
    except WebhookRejected:
        pass
    else:
        return "accepted"
    try:
        SECRETS.decrypt_challenge(body)
        parse_json_object(body)
    except WebhookRejected:
        return "refused"
    return "accepted"


TARGETS = (
    Target(name="slack-events", run=slack_events),
    Target(name="telegram-updates", run=telegram_updates),
    Target(name="feishu-events", run=feishu_events),
    Target(name="feishu-frames", run=feishu_frames),
    Target(name="feishu-webhooks", run=feishu_webhooks),
)
