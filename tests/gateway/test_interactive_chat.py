"""The chat for a person at a terminal: complete input, correct output, and ways to exit."""

import io
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

from bots.terminal.session import (
    TerminalButton,
    TerminalFile,
    TerminalIndicator,
    TerminalLine,
    TerminalMessage,
    TerminalToolStep,
)
from bus.commands import COMMAND_NAMES
from bus.locales import messages_for
from bus.platform import Disposition
from gateway.terminal.completion import CommandCompleter
from gateway.terminal.interactive import (
    EARLIER,
    EXIT_HINT,
    FILES_DROPPED,
    GREETING,
    NO_SESSIONS,
    NO_STEPS,
    OTHER_PROMPT,
    OTHER_TERMINALS,
    PROMPT,
    ChatView,
    InteractiveChat,
    Menu,
)
from gateway.terminal.markdown import render_markdown
from gateway.terminal.remote_client import ConnectionChange, MessageRefused, TerminalClientEvent
from gateway.terminal.session_events import (
    EarlierMessage,
    SessionIdle,
    SessionJoined,
    SessionSummary,
)
from tests.eventually import eventually
from tests.fakes.clock import ManualClock

CTRL_C, CTRL_D, CTRL_O, ENTER, TAB = "\x03", "\x04", "\x0f", "\r", "\t"
UP, DOWN = "\x1b[A", "\x1b[B"
SPINNING = "\x1b[2m⠋ 0 s, Ctrl-C stops\x1b[22m\n"
FILES = Path("/data/terminal")
_ESCAPE = re.compile(r"\x1b(?:\[[?>=]?[0-9;]*[a-zA-Z]|[=>78]|\][^\x07]*\x07)")


class Bot:
    """Gives scripted answers."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.files: list[list[str]] = []
        self.refusal = ""
        self.line_ids: list[str] = []
        self.pressed: list[tuple[str, str]] = []
        self.response = ""
        self.sessions: list[SessionSummary] = []
        self.result = Disposition.ACCEPTED
        self._send, self._receive = anyio.create_memory_object_stream[TerminalClientEvent](100)

    async def send(self, text: str, files: Sequence[Path] = (), *, line_id: str = "") -> str:
        if self.refusal:
            raise MessageRefused(self.refusal)
        self.line_ids.append(line_id)
        self.received.append(text)
        self.files.append([path.name for path in files])
        return self.result

    async def press(self, token: str, message: str) -> str:
        self.pressed.append((token, message))
        return self.response

    async def list_sessions(self) -> list[SessionSummary]:
        return self.sessions

    def tell(self, *events: TerminalClientEvent) -> None:
        for event in events:
            self._send.send_nowait(event)

    def events(self) -> AsyncIterator[TerminalClientEvent]:
        return aiter(self._receive)

    def close(self) -> None:
        self._send.close()
        self._receive.close()


class Screen:
    """The terminal's output without escape sequences."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self.file = io.TextIOWrapper(self._bytes, encoding="utf-8", write_through=True)

    def clear(self) -> None:
        self._bytes.seek(0)
        self._bytes.truncate()

    @property
    def text(self) -> str:
        return _ESCAPE.sub("", self._bytes.getvalue().decode())


class Person:
    """A person at a terminal of 80 columns and 24 rows."""

    def __init__(self, keyboard: PipeInput, screen: Screen, bot: Bot) -> None:
        self.keyboard, self.screen, self.bot = keyboard, screen, bot
        self.has_left = False
        self.went_to: str | None = None

    async def sees(self, text: str) -> None:
        await eventually(lambda: self.screen.text, lambda screen: text in screen)

    async def hears(self, *messages: str) -> None:
        await eventually(lambda: self.bot.received, lambda received: received == list(messages))


@asynccontextmanager
async def at_terminal(folder: Path, typed: str = "") -> AsyncIterator[Person]:
    """Chat until the block ends."""
    bot, screen = Bot(), Screen()
    output = Vt100_Output(
        screen.file, lambda: Size(rows=24, columns=80), term="xterm", enable_cpr=False
    )
    with create_pipe_input() as keyboard:
        person = Person(keyboard, screen, bot)
        chat = InteractiveChat(bot, files=folder, typed=typed, stdin=keyboard, stdout=output)

        async def run() -> None:
            person.went_to = await chat.run()
            person.has_left = True

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await person.sees(PROMPT.strip())
                yield person
                tasks.cancel_scope.cancel()
    bot.close()


def message(text: str, *, final: bool = True, key: str = "k") -> TerminalMessage:
    return TerminalMessage(id=key, text=text, final=final)


@pytest.mark.parametrize(("length", "paste"), [(12_006, "\x1b[200~{}\x1b[201~"), (4_200, "{}")])
async def test_a_long_line_reaches_the_bot_whole(tmp_path: Path, length: int, paste: str) -> None:
    line = "x" * (length - 3) + "end"
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(paste.format(line) + ENTER)
        await person.hears(line)


async def test_a_paste_of_several_lines_is_one_message(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("\x1b[200~one\ntwo\r\nthree\x1b[201~" + ENTER)
        await person.hears("one\ntwo\nthree")


async def test_lines_can_be_edited_and_called_back_also_after_a_restart(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("helo\x1b[Dl" + ENTER)
        await person.hears("hello")
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(UP + "!" + ENTER)
        await person.hears("hello!")
    assert (tmp_path / "history").stat().st_mode & 0o077 == 0


async def test_ctrl_c_stops_the_answer_and_exits_only_when_pressed_twice(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("half a li" + CTRL_C + "hang" + ENTER)
        await person.hears("hang")
        person.bot.tell(TerminalIndicator(state="working"), message("one two", final=False))
        await person.sees("one two")
        person.keyboard.send_text(CTRL_C)
        await person.hears("hang", "/stop")
        person.bot.tell(message("⏹ Stop", final=False))
        await person.sees("⏹ Stop")
        person.bot.tell(message("⏹ Stopped."))
        await person.sees("Stopped.")
        person.keyboard.send_text(CTRL_C)
        await person.sees(EXIT_HINT)
        assert not person.has_left
        person.keyboard.send_text(CTRL_C)
        await eventually(lambda: person.has_left)


@pytest.mark.parametrize("keys", [CTRL_D, "/quit" + ENTER, " /EXIT" + ENTER])
async def test_the_chat_can_be_left(tmp_path: Path, keys: str) -> None:
    async with at_terminal(tmp_path) as person:
        assert GREETING in person.screen.text
        person.keyboard.send_text(keys)
        await eventually(lambda: person.has_left)
    assert person.bot.received == []


async def test_a_refused_line_is_reported(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.bot.result = Disposition.EMPTY
        person.keyboard.send_text("\u200b" + ENTER)
        await person.sees("(not accepted: empty)")


async def test_files_go_with_the_next_message(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("hello")
    (tmp_path / "c.txt").write_text("")
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(f"/attach '{tmp_path}/a b.txt' {tmp_path}/none" + ENTER)
        await person.sees("attached a b.txt, 5 bytes")
        await person.sees("there is no file")
        person.keyboard.send_text(f"{tmp_path}/c.txt " + ENTER)
        await person.sees("attached c.txt, 0 bytes")
        person.keyboard.send_text("read them" + ENTER + "and this" + ENTER)
        await person.hears("read them", "and this")
    assert person.bot.files == [["a b.txt", "c.txt"], []]


async def test_words_behind_the_file_go_with_it_at_once(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("hello")
    (tmp_path / "c.txt").write_text("")
    async with at_terminal(tmp_path) as person:
        for words in ("what's in it?", "sum it up"):
            person.keyboard.send_text(f"/attach '{tmp_path}/a b.txt' {tmp_path}/c.txt {words}")
            person.keyboard.send_text(ENTER)
        await person.hears("what's in it?", "sum it up")
        assert person.bot.files == [["a b.txt", "c.txt"]] * 2
        person.keyboard.send_text(f"/attach {tmp_path}/c.txt {tmp_path}/none words" + ENTER)
        await person.sees(f"{tmp_path}/none")
        person.keyboard.send_text("/attach nothing here" + ENTER)
        await person.sees("there is no file nothing)")
        person.keyboard.send_text("hello" + ENTER)
        await person.hears("what's in it?", "sum it up", "hello")
    assert person.bot.files[2:] == [["c.txt"]]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("/quitt", "quit"), ("/qiut", "quit"), ("/exi", "exit"), ("/atach x.txt", "attach")],
)
async def test_a_misspelled_command_of_the_terminal_is_no_message(
    tmp_path: Path, typed: str, meant: str
) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(typed + ENTER)
        await person.sees(f"(there is no {typed.split(maxsplit=1)[0]}: did you mean /{meant}?)")
        person.keyboard.send_text("/usage" + ENTER)
        await person.hears("/usage")


async def test_help_names_the_terminals_own_commands(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("/help" + ENTER)
        for text in ("/attach FILE", "/quit", "Alt-Enter", "Ctrl-C"):
            await person.sees(text)
        await person.hears("/help")


async def test_an_answer_is_chosen_with_the_arrow_keys(tmp_path: Path) -> None:
    buttons = tuple(TerminalButton(label=name, token=f"option:{name}") for name in "ABC")
    question = TerminalMessage(id="q", text="Which?", final=True, buttons=buttons)
    async with at_terminal(tmp_path) as person:
        person.bot.tell(question)
        await person.sees("› A")
        person.keyboard.send_text(DOWN)
        await person.sees("› B")
        person.keyboard.send_text(UP + UP + ENTER)
        await person.sees("you> C")
        await eventually(lambda: person.bot.pressed == [("option:C", "q")])
        person.screen.clear()
        person.bot.tell(replace(question, id="r"))
        await person.sees("› A")
        person.keyboard.send_text("something else" + ENTER)
        await person.hears("something else")
        person.keyboard.send_text(UP)
        await person.sees("you> something else")
        assert len(person.bot.pressed) == 1


async def test_a_choice_that_is_too_late_is_told_and_one_made_elsewhere_closes_the_menu() -> None:
    view = ChatView(ManualClock())
    view.menu = Menu(["A"], ["a"], lambda _: None, "k")
    await view.show(message("Which?"), FILES)
    assert view.menu is not None
    assert "› A" in view.live_text(80, 24)
    await view.show(message("Which?\n\n✓ A"), FILES)
    assert view.menu is None


async def test_a_refused_choice_is_told(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.bot.response = "That was answered already."
        button = TerminalButton(label="Yes", token="approve:1:0")
        person.bot.tell(TerminalMessage(id="q", text="May I?", final=True, buttons=(button,)))
        await person.sees("› Yes")
        person.keyboard.send_text(ENTER)
        await person.sees("(That was answered already.)")


async def test_another_chat_is_picked_with_the_arrow_keys_or_by_name(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("/sessions" + ENTER)
        await person.sees(NO_SESSIONS)
        person.bot.sessions = [
            SessionSummary(name=name, last_words="Done.", used_at=0) for name in ("main", "trip")
        ]
        person.keyboard.send_text("/sessions" + ENTER)
        await person.sees("› main")
        person.keyboard.send_text(DOWN + ENTER)
        await eventually(lambda: person.went_to == "trip")
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("/sessions ../x" + ENTER + "/sessions new" + ENTER)
        await eventually(lambda: person.went_to == "new")
        assert "a session's name has" in person.screen.text


async def test_tool_calls_stay_and_expand(tmp_path: Path) -> None:
    step = TerminalToolStep(
        id="c1", title="`ls` /mnt", arguments="path: /mnt", result="a\nb\x1b[2J", failed=False
    )
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(CTRL_O)
        await person.sees(NO_STEPS)
        person.bot.tell(step, step, replace(step, id="c2", failed=True), message("Done."))
        await person.sees("Done.")
        assert person.screen.text.count("🔧 ls /mnt") == 2
        assert "🔧 ls /mnt (failed)" in person.screen.text
        assert "path: /mnt" not in person.screen.text
        person.keyboard.send_text(CTRL_O)
        await person.sees("b[2J")
        assert "  path: /mnt" in person.screen.text


async def test_a_long_pasted_text_is_folded_and_reaches_the_bot_whole(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(50))
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(f"read: \x1b[200~{text}\x1b[201~!" + ENTER)
        await person.hears(f"read: {text}!")
        await person.sees("you> read: [pasted text 1, 50 lines]!")
        assert "line 30" not in person.screen.text
        person.keyboard.send_text(f"\x1b[200~{'x' * 2_000}\x1b[201~\x7fy" + ENTER)
        await person.hears(f"read: {text}!", "y")
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text(UP + UP + ENTER)
        await person.hears(f"read: {text}!")


async def test_what_was_typed_before_the_chat_opened_is_sent(tmp_path: Path) -> None:
    async with at_terminal(tmp_path, typed="early\nbird") as person:
        person.keyboard.send_text("s" + ENTER)
        await person.hears("early", "birds")


async def test_lines_of_another_terminal_are_shown_and_own_ones_are_not(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("mine" + ENTER)
        await person.hears("mine")
        person.bot.tell(
            TerminalLine(id=person.bot.line_ids[0], text="mine"), TerminalLine(id="x", text="other")
        )
        await person.sees(f"{OTHER_PROMPT}other")
        assert f"{OTHER_PROMPT}mine" not in person.screen.text


def test_code_is_readable_on_light_backgrounds() -> None:
    code = "```py\nif x:\n    y = 'z'\n```\n\n`a`"
    light = render_markdown(code, background="light")
    assert render_markdown(code) != light
    assert not re.search(r"\x1b\[(?:\d+;)*9[0-7]", light)  # bright colors
    assert "\x1b[34ma" in light


async def test_joining_a_session_shows_earlier_messages_and_other_terminals(tmp_path: Path) -> None:
    earlier = (
        EarlierMessage(is_person=True, text="how are\x1b[2J you?"),
        EarlierMessage(is_person=False, text="**Fine.** " + "x" * 2_000),
    )
    async with at_terminal(tmp_path) as person:
        person.bot.tell(SessionJoined(others=1, earlier=earlier))
        await person.sees(OTHER_TERMINALS[:60])
        await person.sees(EARLIER)
        await person.sees("you> how are[2J you?")
        await person.sees("Fine.")
        await person.sees("x…")
    view, printed = await shown(SessionJoined())
    assert (view.live_text(80, 24), printed) == ("", [])


async def test_finished_prose_is_wrapped_between_words_and_code_is_not() -> None:
    code = "x = " + "1 + " * 10 + "1"
    text = f"one two three four\n\n- five six seven eight\n\n> nine ten eleven\n\n```\n{code}\n```"
    view = ChatView(ManualClock())
    lines = re.sub(r"\x1b\[[0-9;]*m", "", await view.show(message(text), FILES, columns=12)).split(
        "\n"
    )
    assert lines == [
        "one two", "three four", "", "• five six", "  seven", "  eight", "", "│ nine ten", "│ eleven", "", f"  {code}",
    ]  # fmt: skip
    address = "https://example.org/" + "a" * 40
    assert await view.show(message(f"see {address} now", key="b"), FILES, columns=20) == (
        f"see\n{address}\nnow"
    )


async def test_a_growing_answer_is_wrapped_between_words() -> None:
    view, _ = await shown(message("one two three four", final=False))
    rows = view.live_text(11, 24).split("\n")
    assert rows[:2] == ["one two", "three four"]


@pytest.mark.parametrize(
    "code",
    [
        "diff\n--- a\n+++ b\n-x\n+y",
        "makefile\nall:\n\techo hi",
        "pycon\n>>> 1 + 1\n2",
        'pytb\nTraceback (most recent call last):\n  File "x", line 1\nValueError: no',
        "py\nx = 'unfinished",
        'json\n{"a": nope}',
    ],
)
def test_no_line_of_code_is_shown_as_an_error(code: str) -> None:
    shown = render_markdown(f"```{code}\n```")
    assert not re.search(r"\x1b\[(?:\d+;)*(?:31;)?0?4m", shown)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert plain.replace("\t", "    ").split() == code.partition("\n")[2].split()


async def test_enter_sends_files_alone_and_ctrl_c_drops_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    async with at_terminal(tmp_path) as person:
        for key, told in ((CTRL_C, FILES_DROPPED), (ENTER, "Ctrl-C stops")):
            person.keyboard.send_text(f"/attach {tmp_path}/a.txt" + ENTER)
            await person.sees("attached a.txt")
            person.keyboard.send_text(key)
            await person.sees(told)
            person.screen.clear()
        await person.hears("")
    assert person.bot.files == [["a.txt"]]


async def test_a_sentence_about_a_file_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    lines = [f"read {tmp_path}/a.txt", "/etc/no-such-file", "it's"]
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("".join(line + ENTER for line in lines))
        await person.hears(*lines)


async def test_a_message_that_is_not_taken_does_not_end_the_chat(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.bot.refusal = "it is larger than 50 MB"
        person.keyboard.send_text("x" + ENTER)
        await person.sees("(it is larger than 50 MB)")
        person.bot.refusal = ""
        person.keyboard.send_text("y" + ENTER)
        await person.hears("y")


async def test_a_command_is_completed_and_sent_with_the_second_enter(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        person.keyboard.send_text("/bo")
        await person.sees("/bootstrap")
        person.screen.clear()
        person.keyboard.send_text(TAB)
        await person.sees("otstrap")
        person.keyboard.send_text(ENTER + " now" + ENTER)
        await person.hears("/bootstrap now")


def offered(text: str) -> dict[str, str]:
    found = CommandCompleter().get_completions(Document(text), CompleteEvent())
    return {completion.text: completion.display_meta_text for completion in found}


def test_commands_and_paths_are_offered(tmp_path: Path) -> None:
    assert set(offered("/")) == {f"/{name}" for name in COMMAND_NAMES} | {
        "/attach",
        "/sessions",
        "/quit",
    }
    assert all(offered("/").values())
    assert set(offered("/MOD")) == {"/models", "/model"}
    assert offered("hello /m") == offered("/model gpt") == {}
    (tmp_path / "report.pdf").touch()
    assert set(offered(f"/attach {tmp_path}/rep")) == {"ort.pdf"}


async def shown(*events: TerminalClientEvent) -> tuple[ChatView, list[str]]:
    view = ChatView(ManualClock())
    return view, [text for event in events if (text := await view.show(event, FILES))]


async def test_a_message_grows_above_the_prompt_and_is_printed_once() -> None:
    view, printed = await shown(TerminalIndicator(state="working"))
    assert (view.live_text(80, 24), printed) == (SPINNING, [])
    view, printed = await shown(message("so **far", final=False))
    assert (view.live_text(80, 24), printed) == ("so \x1b[1mfar\x1b[22m\n" + SPINNING, [])
    view, printed = await shown(message("a", final=False), message("ab"), message("ab"))
    assert (view.live_text(80, 24), printed) == (SPINNING, ["ab"])
    assert await view.show(SessionIdle(), FILES) == view.live_text(80, 24) == ""


async def test_a_paragraph_that_grows_is_wrapped_and_its_end_is_seen(tmp_path: Path) -> None:
    async with at_terminal(tmp_path) as person:
        for key, text in (("en", f"{'word ' * 70}end"), ("zh", f"{'中文' * 70}尾")):
            person.bot.tell(message(text, final=False, key=key))
            await person.sees(text[-3:])
            person.bot.tell(message("done", key=key))
            await person.sees("done")
            person.screen.clear()


async def test_no_row_of_a_growing_answer_is_wider_than_the_terminal() -> None:
    view, _ = await shown(message(f"{'中' * 2000} **end**", final=False))
    rows = re.sub(r"\x1b\[[0-9;]*m", "", view.live_text(81, 24)).split("\n")[:-2]
    assert len(rows) == 18
    assert rows[-1].endswith("end")
    assert {get_cwidth(row) for row in rows[:-1]} == {80}


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_a_stopped_answer_is_reported_once(language: str) -> None:
    messages = messages_for(language)
    view, _ = await shown(TerminalIndicator(state="working"), message("one", final=False))
    view.set_stopped(is_stopped=True)
    answer = f"one\n\n{messages.stopped}"
    assert await view.show(message(answer), FILES) == answer
    assert await view.show(message(messages.stop_done, key="reply"), FILES) == ""
    assert await view.show(message(messages.stop_done, key="later"), FILES) != ""


async def test_a_long_answer_shows_its_end_while_it_grows() -> None:
    text = "\n\n".join(f"line {number} {'x' * 100}" for number in range(50))
    view, _ = await shown(message(text, final=False))
    live = view.live_text(80, 24)
    assert "line 49" in live
    assert sum(1 + len(line) // 80 for line in live.split("\n")) <= 20


async def test_files_and_lost_connections_are_shown() -> None:
    file = TerminalFile(id="f", name="a\x1b[2J.txt", path="s/a.txt")
    _, printed = await shown(file, ConnectionChange("connected again"))
    assert printed == [f"[file] a[2J.txt -> {FILES}/s/a.txt", "(connected again)"]


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("# A *b*", "\x1b[1mA b\x1b[22m"),
        ("`x` ~~y~~", "\x1b[36mx\x1b[39m \x1b[9my\x1b[29m"),
        ("1. a\n2. b\n   - c", "1. a\n2. b\n   • c"),
        ("> q\n> r", "│ q\n│ r"),
        ("```\nx = 1\n```", "\x1b[36m  x = 1\x1b[39m"),
        ("```nope\nx = 1\n```", "\x1b[36m  x = 1\x1b[39m"),
        ("```py\nif x:\n    y\n```", "  \x1b[94mif\x1b[39;49;00m x:\n      y"),
        ("|a|b|\n|-|-|\n|1|2|", "a | b\n--+--\n1 | 2"),
        ("[x](https://y) ![z](https://w) <https://v>", "x (https://y) z (https://w) https://v"),
        ("---", "─" * 20),
        ("- [x] a\n- [ ] b", "• ☑ a\n• ☐ b"),
        ("||a|| $x_1*y$ x<sup>2</sup>", "||a|| $x_1*y$ x²"),
        ("<details><summary>M</summary>\n\nx\n</details>", "\x1b[1mM\x1b[22m\n\nx"),
        ("\x1b[2J\x9b31m a\u202eb", "[2J31m ab"),
    ],
)
def test_markdown_is_shown_with_styles(markdown: str, text: str) -> None:
    assert render_markdown(markdown) == text


@pytest.mark.parametrize(
    "hidden",
    ["<https://a.example/%1bc%07>", "<x%1bc@a.example>", "&#8238;a", "[&#x202e;](https://x)"],
)
def test_entities_and_addresses_cannot_steer_the_terminal(hidden: str) -> None:
    shown = re.sub(r"\x1b\[\d+m", "", render_markdown(f"see {hidden} **b**"))
    assert shown.startswith("see ")
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
