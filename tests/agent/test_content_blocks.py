"""Attachments in every format that clients send: the model sees the attachment, or else its name."""

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from agent.content_blocks import Block, fit_messages, model_inputs, standard_block
from tests.agent.test_model_servers import agents_with, openai_at, turn
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest

KEY = SecretStr("k")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 8).decode()
PDF = base64.b64encode(b"%PDF-1.7 hello").decode()
URL = "https://a.example/b"
IMAGE_URL = f"data:image/png;base64,{PNG}"

SEEN: dict[str, Block] = {
    "v1": {"type": "image", "base64": PNG, "mime_type": "image/png"},
    "v1 by url": {"type": "image", "url": URL},
    "v0": {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
    "v0 by url": {"type": "image", "source_type": "url", "url": URL},
    "javascript": {"type": "image", "mimeType": "image/png", "data": PNG},
    "agent-chat-ui": {
        "type": "image",
        "mimeType": "image/png",
        "data": PNG,
        "metadata": {"name": "cat.png"},
    },
    "javascript by url": {"type": "image", "url": URL, "mimeType": "image/png"},
    "openai": {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
    "openai as a string": {"type": "image_url", "image_url": URL},
    "openai with data": {"type": "image_url", "image_url": {"url": IMAGE_URL}},
    "openai's newer API": {"type": "input_image", "image_url": IMAGE_URL},
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    },
    "anthropic by url": {"type": "image", "source": {"type": "url", "url": URL}},
    "a file that is an image": {"type": "file", "mimeType": "image/png", "data": PNG},
    "without type": {"mimeType": "image/png", "data": PNG},
    "without type or mime": {"image_url": {"url": URL}},
    "without mime": {"type": "image", "data": PNG},
    "data in url": {"type": "image", "url": IMAGE_URL},
    "wrapped": {"type": "non_standard", "value": {"type": "image", "mimeType": "image/png", "data": PNG}},
}  # fmt: skip
"""Images that every model with vision can see."""

NAMED: dict[str, tuple[Block, str]] = {
    "image by id": ({"type": "image", "file_id": "f1"}, "An image"),
    "v0 image by id": ({"type": "image", "source_type": "id", "id": "f1"}, "An image"),
    "image without anything": ({"type": "image"}, "An image"),
    "image with a broken url": ({"type": "image_url", "image_url": {"url": 5}}, "An image"),
    "image of a browser": ({"type": "image", "url": "blob:http://localhost/1"}, "An image"),
    "image with bytes": ({"type": "image", "mimeType": "image/png", "data": {"0": 1}}, "An image"),
    "video": ({"type": "video", "base64": "AAAA", "mime_type": "video/mp4"}, "A video"),
    "javascript's video": ({"type": "video", "mimeType": "video/mp4", "data": "AA"}, "A video"),
    "video by url": ({"type": "video_url", "video_url": {"url": URL}}, "A video"),
    "file that is a video": ({"type": "file", "mime_type": "video/mp4", "base64": "AA"}, "A video"),
    "audio by url": ({"type": "audio", "url": URL}, "An audio recording"),
    "audio by id": ({"type": "audio", "fileId": "f1"}, "An audio recording"),
    "file by url": ({"type": "file", "url": URL}, "A file"),
    "v0 file by url": ({"type": "file", "source_type": "url", "url": URL}, "A file"),
    "file without anything": ({"type": "file", "filename": "a.pdf"}, "A file (a.pdf)"),
    "google's": ({"type": "media", "mime_type": "video/mp4", "file_uri": "gs://a/b"}, "A video"),
    "empty text": ({"type": "text-plain"}, "A file"),
    "unknown": ({"type": "hologram", "data": "AA"}, "Something"),
    "no type at all": ({"a": {"b": 1}}, "Something"),
    "a type that is no text": ({"type": ["image"]}, "Something"),
}
"""Blocks that OpenAI's Chat Completions API does not accept, and their names in the note."""

SENT: dict[str, tuple[Block, Block]] = {
    "audio": (
        {"type": "audio", "mimeType": "audio/wav", "data": "AA=="},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ),
    "openai's audio": (
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
    ),
    "file": (
        {"type": "file", "data": PDF, "mimeType": "application/pdf", "metadata": {"name": "a.pdf"}},
        {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"},
        },
    ),
    "openai's file": (
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
        {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"},
        },
    ),
    "file by id": (
        {"type": "file", "file": {"file_id": "f1"}},
        {"type": "file", "file": {"file_id": "f1"}},
    ),
    "text": ({"type": "text-plain", "text": "hello"}, {"type": "text", "text": "hello"}),
    "text in the old form": (
        {"type": "file", "source_type": "text", "text": "hello", "mime_type": "text/plain"},
        {"type": "text", "text": "hello"},
    ),
    "text with a name": (
        {"type": "text-plain", "text": "hello", "title": "a.txt"},
        {"type": "text", "text": "a.txt\n\nhello"},
    ),
    "openai's text": ({"type": "input_text", "text": "hello"}, {"type": "text", "text": "hello"}),
    "text without type": ({"text": "hello"}, {"type": "text", "text": "hello"}),
    "text that is a number": ({"type": "text", "text": 5}, {"type": "text", "text": "5"}),
}
"""Blocks that it accepts, each with the form in which it is sent."""

KNOWN_PARTS = {"text", "image_url", "input_audio", "file"}


def _strict(request: ModelRequest) -> ModelReply:
    """Refuse the requests that OpenAI's server refuses."""
    for message in request.messages:
        content = message["content"]
        for part in content if isinstance(content, list) else ():
            if part.get("type") not in KNOWN_PARTS or not isinstance(
                part.get(part["type"]), str | dict
            ):
                return ModelReply(status=400, error_text=f"unknown part {part}")
            if part["type"] == "image_url" and set(part["image_url"]) - {"url", "detail"}:
                return ModelReply(status=400, error_text=f"unknown image {part}")
    return ModelReply(text="Fine.")


async def _asked(tmp_path: Path, block: Block, **keys: bool) -> list[Any]:
    """Send a message with a block, then another message. Return the block as the model got it in each request."""
    async with FakeModelServer(answer=_strict) as server:
        async with agents_with(tmp_path, openai_at(server, **keys)) as agents:
            for said in ([{"type": "text", "text": "look"}, block], "and now?"):
                spoken, _ = await turn(agents, said)
                assert spoken == "Fine."
        assert len(server.requests) == 2
        people = [[m for m in r.messages if m["role"] == "user"] for r in server.requests]
    return [said[0]["content"][1] for said in people]


@pytest.mark.parametrize("block", SEEN.values(), ids=SEEN)
async def test_an_image_is_seen_in_every_form(tmp_path: Path, block: Block) -> None:
    first, later = await _asked(tmp_path, block, supports_vision=True)
    assert first == later
    assert first["type"] == "image_url"
    assert first["image_url"]["url"] in {URL, IMAGE_URL}
    assert first["image_url"].get("detail") == ("low" if "detail" in str(block) else None)


@pytest.mark.parametrize("block", SEEN.values(), ids=SEEN)
async def test_a_model_without_vision_gets_a_note_about_an_image(
    tmp_path: Path, block: Block
) -> None:
    for shown in await _asked(tmp_path, block):
        name = " (cat.png)" if "metadata" in block else ""
        note = f"[An image{name} was attached here; this model cannot read it.]"
        assert shown == {"type": "text", "text": note}


@pytest.mark.parametrize(("block", "what"), NAMED.values(), ids=NAMED)
async def test_unsupported_content_is_named_for_the_model(
    tmp_path: Path, block: Block, what: str
) -> None:
    for shown in await _asked(tmp_path, block, supports_vision=True):
        note = f"[{what} was attached here; this model cannot read it.]"
        assert shown == {"type": "text", "text": note}


@pytest.mark.parametrize(("block", "sent"), SENT.values(), ids=SENT)
async def test_supported_content_is_sent_to_the_model(
    tmp_path: Path, block: Block, sent: Block
) -> None:
    assert await _asked(tmp_path, block) == [sent, sent]


def test_blocks_of_tools_and_of_answers_are_fitted_too() -> None:
    video: Block = {"type": "video", "mimeType": "video/mp4", "data": "AA"}
    reasoning: Block = {"type": "reasoning", "reasoning": "hm"}
    note = {"type": "text", "text": "[A video was attached here; this model cannot read it.]"}
    said = [AIMessage([video, reasoning]), ToolMessage([video], tool_call_id="c1")]
    inputs = model_inputs(ChatOpenAI(model="m", api_key=KEY), supports_vision=True)
    assert [one.content for one in fit_messages(said, inputs)] == [[note, reasoning], [note]]


KEYS = [
    *("type", "data", "base64", "url", "mimeType", "mime_type", "source", "source_type", "id"),
    *("file", "image_url", "input_audio", "text", "value", "file_id", "extras"),
]
VALUES: list[Any] = [
    *("image", "audio", "video", "file", "text-plain", "image_url", "non_standard", "id"),
    *("base64", "text", "", "AA==", URL, IMAGE_URL, "data:,x", None, 5, [], {}),
    *({"type": "base64", "data": "AA=="}, {"url": URL}, {"file_id": "f"}, {"data": 5}),
]


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
@given(block=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)))
def test_no_block_makes_a_model_class_raise(name: str, block: Block) -> None:
    models: dict[str, Any] = {
        "chat": ChatOpenAI(model="m", api_key=KEY),
        "responses": ChatOpenAI(model="m", api_key=KEY, use_responses_api=True),
        "anthropic": ChatAnthropic(model_name="m", api_key=KEY),  # type: ignore[call-arg]  # others have defaults
    }
    model = models[name]
    said = [HumanMessage([block]), ToolMessage([block], tool_call_id="c")]
    for supports_vision in (True, False):
        inputs = model_inputs(model, supports_vision=supports_vision)
        model._get_request_payload(fit_messages(said, inputs))
    assert standard_block(standard_block(block)) == standard_block(block)
