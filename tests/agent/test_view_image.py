"""view_image: the files that can be viewed, and when the model sees them."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from PIL import Image

from agent.errors import SandboxError
from agent.factory import open_agent_factory
from agent.middleware.view_image import (
    INTRO,
    NOT_SHOWN,
    ImagePlace,
    image_message,
    image_places,
)
from agent.services import AgentSetup
from agent.state import SHOWS_IMAGES
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.tools.view_image import MAX_IMAGE_BYTES, load_image
from agent.uploads.image_size import image_size
from agent.uploads.images import (
    KEPT_TURNS,
    LEFT_OUT,
    MAX_SHOWN_BYTES,
    ModelImages,
    fit_image,
    image_block,
    image_chars,
    limit_images,
)
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import CONFIG, THREAD
from tests.agent.test_factory import configured
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

WORK = "/mnt/user-data/workspace"
SEES = {"supports_vision": True}
CONTENT = {
    "a.png": b"\x89PNG\r\n\x1a\n" + b"p" * 20,
    "b.jpg": b"\xff\xd8\xff\xe0" + b"j" * 20,
    "c.jpeg": b"\xff\xd8\xff\xe1" + b"j" * 20,
    "d.webp": b"RIFF\x10\0\0\0WEBPVP8 ",
    "e.gif": b"GIF89a\x02\0\x02\0" + b"g" * 20,
}


def view(path: str, call_id: str = "v1") -> ToolCall:
    return ToolCall(name="view_image", args={"image_path": path}, id=call_id)


def ls(call_id: str) -> ToolCall:
    return ToolCall(name="ls", args={"path": WORK}, id=call_id)


def fill(rooms: ThreadFolders) -> None:
    rooms.create()
    for name, content in CONTENT.items():
        (rooms.workspace / name).write_bytes(content)


def pictures(prompt: list[Any]) -> list[tuple[int, str]]:
    """Return (position, text of the message) of each message that shows viewed images."""
    return [
        (i, " ".join(b["text"] for b in message.content if isinstance(b, dict) and "text" in b))
        for i, message in enumerate(prompt)
        if isinstance(message, HumanMessage) and isinstance(message.content, list)
    ]


# ---- through the agent -------------------------------------------------------------------------


async def test_images_stay_behind_the_results_of_their_calls(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(
        ModelReply(calls=(view(f"{WORK}/a.png", "v1"), ls("l1"), view(f"{WORK}/b.jpg", "v2"))),
        ModelReply(calls=(ls("l2"),)),
        "a cat and a dog",
        "as I said",
    )
    async with open_agent(tmp_path, model, entry=SEES) as harness:
        fill(harness.folders())
        await harness.say("what do they show?")
        after = await harness.state()
        await harness.say("and now?")
    first, second, third, fourth = model.prompts
    assert pictures(first) == []
    ((place, text),) = pictures(second)
    assert text.startswith(INTRO)
    assert f"**{WORK}/a.png** (image/png)" in text
    assert f"**{WORK}/b.jpg** (image/jpeg)" in text
    assert [type(m) for m in second[place - 4 : place]] == [
        AIMessage,
        ToolMessage,
        ToolMessage,
        ToolMessage,
    ]
    kinds = [b["image_url"]["url"][:15] for b in second[place].content if b["type"] == "image_url"]  # type: ignore[index]
    assert kinds == ["data:image/png;", "data:image/jpeg"]
    # The images stay at the same place, so the request before stays cached.
    assert third[: len(second)] == second
    assert fourth[: len(third)] == third
    assert after["viewed_images"] == {}
    assert not [m for m in after["messages"] if isinstance(m.content, list)]


async def test_a_line_with_the_file_replaces_an_image_of_an_earlier_turn(tmp_path: Path) -> None:
    look = ModelReply(calls=(view(f"{WORK}/a.png"),))
    turns = 2 * KEPT_TURNS + 2
    model = ScriptedChatModel.playing(look, *["seen"] * turns)
    async with open_agent(tmp_path, model, entry=SEES) as harness:
        fill(harness.folders())
        for number in range(turns):
            await harness.say(f"message {number}")
    shown = ["data:image" in str(prompt) for prompt in model.prompts[1:]]
    assert shown == [True] * 2 * KEPT_TURNS + [False] * 2
    ((place, text),) = pictures(model.prompts[-1])
    assert text == f"{INTRO} \n- {WORK}/a.png: {NOT_SHOWN}"
    assert pictures(model.prompts[-2]) == [(place, text)]


async def test_the_state_contains_paths_only(tmp_path: Path) -> None:
    look = ModelReply(calls=(view(f"{WORK}/a.png"),))
    model = ScriptedChatModel.playing(look, RuntimeError("the provider is down"), "fine again")
    async with open_agent(tmp_path, model, entry=SEES) as harness:
        fill(harness.folders())
        with pytest.raises(RuntimeError):
            await harness.say("look")
        stopped = await harness.state()
        await harness.say("go on")
        after = await harness.state()
        stored = (tmp_path / "checkpoints.db").read_bytes()
    assert stopped["viewed_images"] == {
        f"{WORK}/a.png": {"mime_type": "image/png", "size": len(CONTENT["a.png"])}
    }
    ((_, text),) = pictures(model.prompts[-1])
    assert f"**{WORK}/a.png**" in text
    assert after["viewed_images"] == {}
    assert b"data:image" not in stored


async def test_an_image_that_is_viewed_again_is_shown_once(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(
        ModelReply(calls=(view(f"{WORK}/a.png", "v1"),)),
        ModelReply(calls=(view(f"{WORK}/d.webp", "v2"),)),
        ModelReply(calls=(view(f"{WORK}/a.png", "v3"),)),
        "done",
    )
    async with open_agent(tmp_path, model, entry=SEES) as harness:
        fill(harness.folders())
        await harness.say("look")
    texts = [text.removeprefix(INTRO).strip() for _, text in pictures(model.prompts[3])]
    assert texts == [
        f"- {WORK}/a.png: {NOT_SHOWN}",
        f"- **{WORK}/d.webp** (image/webp)",
        f"- **{WORK}/a.png** (image/png)",
    ]


async def test_errors_are_shown_to_the_model(tmp_path: Path) -> None:
    calls = tuple(
        view(path, f"v{n}")
        for n, path in enumerate(["/etc/passwd.png", f"{WORK}/none.png", f"{WORK}/../x.png", ""])
    )
    model = ScriptedChatModel.playing(ModelReply(calls=calls), "sorry")
    async with open_agent(tmp_path, model, entry=SEES) as harness:
        history = await harness.say("look")
        state = await harness.state()
    answers = [m for m in history if isinstance(m, ToolMessage)]
    assert all(m.text.startswith("Error: ") and m.status == "error" for m in answers)
    assert str(tmp_path) not in "".join(m.text for m in answers)
    assert pictures(model.prompts[1]) == []
    assert not state.get("viewed_images")


async def test_a_model_that_does_not_see_has_no_such_tool(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(ModelReply(calls=(view(f"{WORK}/a.png"),)), "ok")
    async with open_agent(tmp_path, model) as harness:
        fill(harness.folders())
        history = await harness.say("look")
    (answer,) = [m for m in history if isinstance(m, ToolMessage)]
    assert "view_image is not a valid tool" in answer.text


# ---- files that may be viewed ------------------------------------------------------------------


@pytest.fixture
def rooms(tmp_path: Path) -> ThreadFolders:
    folders = ThreadStorage(tmp_path).folders(THREAD)
    fill(folders)
    return folders


@pytest.mark.parametrize("name", CONTENT)
def test_images_of_all_kinds(rooms: ThreadFolders, name: str) -> None:
    image = load_image(rooms, f"{WORK}/{name}", ModelImages())
    assert image.size == len(CONTENT[name])
    assert image.block == image_block(CONTENT[name], image.mime)
    assert load_image(rooms, f"{WORK}/{name}").block is None
    assert load_image(rooms, name).path == f"{WORK}/{name}"  # relative to the workspace


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/etc/shadow.png", "only paths below"),
        ("/mnt/acp-workspace/a.png", "only paths below"),
        ("/mnt/skills/a.png", "only paths below"),
        ("/mnt/user-data-2/a.png", "only paths below"),
        (f"{WORK}/../../secret.png", "traversal"),
        (f"{WORK}/outside.png", "leads out"),
        (f"{WORK}/none.png", "no such file"),
        (f"{WORK}/folder.png", "a folder"),
        (f"{WORK}/pipe.png", "not a regular file"),
        (f"{WORK}/notes.txt", "only images"),
        (f"{WORK}/noname", "only images"),
        (f"{WORK}/fake.png", "it is not an image"),
        (f"{WORK}/other.png", "it is image/jpeg"),
        (f"{WORK}/empty.png", "it is not an image"),
        (f"{WORK}/large.png", "smaller copy"),
        ("", "empty"),
        (f"{WORK}/a\0.png", "NUL"),
    ],
)
def test_these_images_are_refused(rooms: ThreadFolders, path: str, told: str) -> None:
    work = rooms.workspace
    (rooms.root / "secret.png").write_bytes(CONTENT["a.png"])
    (work / "outside.png").symlink_to(rooms.root / "secret.png")
    (work / "folder.png").mkdir()
    os.mkfifo(work / "pipe.png")
    for name in ("notes.txt", "noname"):
        (work / name).write_bytes(CONTENT["a.png"])
    (work / "fake.png").write_bytes(b"<svg onload='x'/>")
    (work / "other.png").write_bytes(CONTENT["b.jpg"])
    (work / "empty.png").write_bytes(b"")
    with (work / "large.png").open("wb") as file:
        file.write(CONTENT["a.png"])
        file.truncate(MAX_IMAGE_BYTES + 1)
    with pytest.raises(SandboxError, match=told) as error:
        load_image(rooms, path)
    assert str(rooms.root) not in error.value.user_message


# ---- position and content ----------------------------------------------------------------------


def asked(*names: str) -> AIMessage:
    return AIMessage(
        "", tool_calls=[{"name": n, "args": {}, "id": f"{n}-{i}"} for i, n in enumerate(names)]
    )


def result(call_id: str, *paths: str) -> ToolMessage:
    extra = {SHOWS_IMAGES: list(paths)} if paths else {}
    return ToolMessage("ok", tool_call_id=call_id, additional_kwargs=extra)


def test_images_follow_all_results_of_a_step() -> None:
    one, user = asked("view_image"), HumanMessage("look", id="1")
    two = asked("view_image", "ls")
    seen, listed = result("view_image-0", "a.png"), result("ls-1")
    again = result("view_image-0", "b.png")
    hidden = HumanMessage("careful", additional_kwargs={"hide_from_ui": True})

    def found(*messages: AnyMessage) -> list[tuple[int, int, tuple[str, ...]]]:
        return [(place.position, place.turn, place.paths) for place in image_places(messages)]

    assert found() == []
    assert found(user) == []
    assert found(user, one) == []
    assert found(user, one, seen) == [(3, 0, ("a.png",))]
    assert found(user, two, seen) == []
    assert found(user, two, seen, listed) == [(4, 0, ("a.png",))]
    assert found(user, two, seen, listed, hidden) == [(4, 0, ("a.png",))]
    later = HumanMessage("next", id="2")
    places = found(user, two, seen, listed, AIMessage("hm"), later, one, again, asked("ls"))
    assert places == [(4, 0, ("a.png",)), (8, 1, ("b.png",))]


def shown_at(rooms: ThreadFolders, *paths: str) -> list[Any]:
    """Return the blocks that show these images."""
    place = ImagePlace(position=0, turn=0, paths=paths, shown=frozenset(paths))
    images = ModelImages()
    return list(image_message(rooms, place, images, until=images.deadline()).content)


def test_images_that_cannot_be_shown_are_reported(rooms: ThreadFolders) -> None:
    blocks = shown_at(rooms, *(f"{WORK}/{name}" for name in ("a.png", "gone.png")))
    assert [block["type"] for block in blocks] == ["text", "text", "image_url", "text"]
    assert "no such file" in blocks[3]["text"]


def test_the_latest_eight_images_of_a_step_are_shown() -> None:
    paths = [f"{n}.png" for n in range(10)]
    (place,) = image_places([asked("view_image"), result("view_image-0", *paths)])
    assert place.paths == tuple(paths)
    assert place.shown == set(paths[2:])


# ---- limits ------------------------------------------------------------------------------------


def photo(width: int, height: int, kind: str = "JPEG") -> bytes:
    """Return an image of noise, which compresses badly."""
    image = Image.effect_noise((width, height), 90).convert("RGBA" if kind == "PNG" else "RGB")
    data = io.BytesIO()
    image.save(data, kind, compress_level=1)  # for PNG; noise does not compress anyway
    return data.getvalue()


@pytest.mark.parametrize(("kind", "mime"), [("JPEG", "image/jpeg"), ("PNG", "image/png")])
def test_images_beyond_the_providers_limits_are_made_smaller(kind: str, mime: str) -> None:
    large = photo(3000, 2400, kind)
    assert len(large) > MAX_SHOWN_BYTES
    fitted = fit_image(large, mime)
    assert fitted is not None
    assert fitted[1] == "image/jpeg"
    assert len(fitted[0]) <= MAX_SHOWN_BYTES
    with Image.open(io.BytesIO(fitted[0])) as image:
        assert image.size == (2000, 1600)


def test_small_and_unknown_images_stay_as_they_are() -> None:
    small = photo(300, 200)
    assert fit_image(small, "image/jpeg") == (small, "image/jpeg")
    long = photo(9000, 10)
    assert fit_image(long, "image/jpeg") != (long, "image/jpeg")
    unknown = CONTENT["a.png"]
    assert fit_image(unknown, "image/png") == (unknown, "image/png")
    assert fit_image(unknown + bytes(MAX_SHOWN_BYTES), "image/png") is None


def test_an_image_with_more_pixels_than_models_see_is_made_smaller() -> None:
    fitted = fit_image(photo(2_400, 120, "PNG"), "image/png")
    assert fitted is not None
    assert (image_size(fitted[0]), fitted[1]) == ((2_000, 100), "image/jpeg")


def test_an_image_within_the_limits_stays_if_it_cannot_be_made_smaller() -> None:
    data = photo(2_400, 120, "PNG")
    assert fit_image(data, "image/png", memory_bytes=1) == (data, "image/png")
    assert fit_image(data, "image/png", deadline_s=0) == (data, "image/png")


def test_images_with_too_many_pixels_are_not_decoded() -> None:
    data = io.BytesIO()
    Image.new("1", (9000, 9000)).save(data, "PNG")
    assert len(data.getvalue()) < 100_000
    assert fit_image(data.getvalue(), "image/png") is None


BOMB = """
import resource, sys
from agent.uploads.images import fit_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fitted = fit_image(sys.stdin.buffer.read(), "image/png", deadline_s=100)
print(fitted[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, "PIL" in sys.modules)
"""


def bomb() -> bytes:
    """Return a PNG of 200 kB with 50 million pixels, 200 MB decoded."""
    data = io.BytesIO()
    Image.new("RGBA", (9000, 5500)).save(data, "PNG")
    return data.getvalue()


def test_images_are_decoded_in_another_process() -> None:
    command = [sys.executable, "-c", BOMB]
    done = subprocess.run(command, input=bomb(), stdout=subprocess.PIPE, check=True)
    kind, grown_kb, decoder = done.stdout.decode().split()
    assert kind == "image/jpeg"
    assert int(grown_kb) < 20_000
    assert decoder == "False"


def test_an_image_that_takes_too_much_memory_or_time_is_not_shown() -> None:
    data = bomb()
    assert fit_image(data, "image/png", memory_bytes=300_000_000) is None
    assert fit_image(data, "image/png", deadline_s=0.01) is None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("GIF", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "comment": b"c" * 60_000, "exif": b"Exif\0\0" + bytes(900)}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"quality": 80}),
        ("WEBP", {"quality": 80, "exif": b"Exif\0\0" + bytes(90)}),
    ],
)
def test_the_size_of_an_image_is_in_its_header(kind: str, options: dict[str, Any]) -> None:
    image = Image.effect_noise((517, 304), 90).convert("P" if kind == "GIF" else "RGB")
    data = io.BytesIO()
    image.save(data, kind, **options)
    assert image_size(data.getvalue()) == (517, 304)
    for end in range(0, 30, 3):
        assert image_size(data.getvalue()[:end]) in {None, (517, 304)}


def test_a_jpeg_without_end_has_no_size() -> None:
    assert image_size(b"\xff\xd8" + b"\xff\xe0\0\2" * 100_000) is None
    assert image_size(b"\xff\xd8" + b"\xff" * 100_000) is None


def test_an_image_is_encoded_once_until_its_file_changes(rooms: ThreadFolders) -> None:
    images, path = ModelImages(), f"{WORK}/a.png"
    first = load_image(rooms, path, images).block
    assert load_image(rooms, path, images).block is first
    (rooms.workspace / "a.png").write_bytes(CONTENT["a.png"] + b"more")
    assert load_image(rooms, path, images).block != first


async def test_the_images_of_a_request_are_limited_together(tmp_path: Path) -> None:
    """It does not matter where the images come from: uploads, clients or tools."""
    model = ScriptedChatModel.playing("one", "two")
    block = image_block(b"p" * 1_400_000, "image/png")
    async with open_agent(tmp_path, model, entry=SEES) as harness:
        await harness.say(HumanMessage([{"type": "text", "text": "first"}, *[block] * 6]))
        await harness.say(HumanMessage([{"type": "text", "text": "second"}, *[block] * 6]))
    blocks = [b for m in model.prompts[1] if isinstance(m.content, list) for b in m.content]
    kinds = [b["type"] if isinstance(b, dict) else "" for b in blocks]
    left_out = {"type": "text", "text": LEFT_OUT}
    assert kinds.count("image_url") == 10
    assert blocks.count(left_out) == 2
    assert blocks.index(left_out) < 3  # the oldest ones


def test_a_request_has_at_most_twenty_images() -> None:
    block = image_block(b"p", "image/png")
    messages: list[Any] = [
        HumanMessage([block] * 15),
        HumanMessage("and"),
        HumanMessage([block] * 8),
    ]
    limited = limit_images(messages)
    shown = [
        [image_chars(b) > 0 for b in m.content] for m in limited if isinstance(m.content, list)
    ]
    assert shown == [[False] * 3 + [True] * 12, [True] * 8]
    assert limited[1] is messages[1]
    assert limit_images(messages[1:]) is not limited
    assert limit_images(messages[2:])[0] is messages[2]


# ---- over the wire -----------------------------------------------------------------------------


async def test_a_real_model_class_sends_the_images(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(
            ModelReply(calls=(ToolCall("view_image", {"image_path": f"{WORK}/a.png"}),)), "a cat"
        )
        config = configured(server, supports_vision=True)
        site = AgentSetup(config=config, home=tmp_path)
        async with open_agent_factory(site, InMemorySaver()) as agents:
            rooms = agents.services.folders.folders(THREAD)
            fill(rooms)
            (rooms.uploads / "b.jpg").write_bytes(CONTENT["b.jpg"])
            sent = HumanMessage("look", additional_kwargs={"files": [{"filename": "b.jpg"}]})
            await (await agents.graph_for({})).ainvoke({"messages": [sent]}, CONFIG)
    first, second = (
        [m for m in r.body["messages"] if m["role"] == "user"] for r in server.requests
    )
    urls = [
        [block["image_url"]["url"][:16] for block in m["content"] if block["type"] == "image_url"]
        for m in second
    ]
    assert urls == [["data:image/jpeg;"], ["data:image/png;b"]]
    assert first == second[:1]
    assert second[0]["content"][0]["text"].endswith("\n\nlook")
