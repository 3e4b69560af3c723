"""`parley init`: asks questions, checks the answers, and writes both files or none."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from dotenv import dotenv_values
from typing_extensions import override

from agent.config import ToolConfig
from agent.tools.registry import configured_tools
from bots.common.diagnosis import CheckResult
from gateway.cli import build_parser, main
from gateway.command_errors import CommandFailed
from gateway.commands.init import run_setup
from gateway.config import Config, load_config
from gateway.config_upgrade import ConfigUpgradeError
from gateway.file_drafts import write_drafts
from gateway.playground.feishu.server import FakeFeishu
from gateway.playground.slack.server import FakeSlack
from gateway.playground.telegram.server import TelegramServer
from gateway.setup.config_files import HEADER_COMMENT, config_draft, env_draft
from gateway.setup.prompts import SetupPrompter
from gateway.setup.steps import SetupStep
from gateway.setup.wizard import CredentialCheck, SetupAnswers, check_package, prompt_for_answers
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.speech import FakeSpeechServer
from tests.gateway.test_cli import one_line, parley
from tests.journeys.test_terminal import CTRL_C, at_a_terminal

KEY = "sk-0123456789"
DEMO = "4"


class ScriptedPrompter(SetupPrompter):
    """Gives scripted answers in order. Records the questions and the messages."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.hidden: list[str] = []
        self.told = ""

    @override
    def show(self, text: str) -> None:
        self.told += f"{text}\n"

    @override
    def _line(self, prompt: str, *, hidden: bool) -> str:
        self.asked.append(prompt)
        if hidden:
            self.hidden.append(prompt)
        if not self.answers:
            raise CommandFailed("the input ended")
        return self.answers.pop(0)


class SetupHarness:
    """A folder to set up in."""

    def __init__(self, folder: Path, config: Mapping[str, Any] | str = "") -> None:
        self.config = folder / "config.yaml"
        self.env = folder / ".env"
        if config:
            self.config.write_text(config if isinstance(config, str) else yaml.safe_dump(config))

    async def ask(
        self, *answers: str, arguments: Sequence[str] = (), **environ: str
    ) -> ScriptedPrompter:
        """Run the command with these answers. Fail if one is not used."""
        person = ScriptedPrompter(*answers)
        await self._run(person, arguments, environ)
        assert person.answers == []
        return person

    async def take(self, *arguments: str, **environ: str) -> ScriptedPrompter:
        """Run the command without questions."""
        person = ScriptedPrompter()
        await self._run(person, ["--non-interactive", *arguments], environ)
        assert person.asked == []
        return person

    async def _run(
        self, person: SetupPrompter, arguments: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        given = build_parser().parse_args(["init", *arguments, "--config", str(self.config)])
        await anyio.to_thread.run_sync(run_setup, given, person, environ)

    def loaded(self, **environ: str) -> Config:
        return load_config(str(self.config), dict(environ))

    @property
    def values(self) -> dict[str, str | None]:
        return dotenv_values(self.env)

    @property
    def untouched(self) -> bool:
        return not self.env.exists() and not list(self.config.parent.glob(".*"))


def slack_at(slack: FakeSlack) -> dict[str, Any]:
    return {"channels": {"slack": {"base_url": slack.base_url}}}


def telegram_at(telegram: TelegramServer) -> dict[str, Any]:
    urls = {"base_url": telegram.base_url, "base_file_url": telegram.base_file_url}
    return {"channels": {"telegram": urls}}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


async def test_slack_setup_asks_for_two_tokens_and_tries_them(tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        harness = SetupHarness(tmp_path, slack_at(slack))
        person = await harness.ask("slack", slack.bot_token, slack.app_token, DEMO)
        assert len(person.hidden) == 2
        assert "https://api.slack.com/apps?new_app=1&manifest_json=" in person.told
        assert "@parley in Team" in person.told
        assert slack.sockets.connects == 0  # a service that may already run is not disturbed
        assert slack.violations == []
        assert slack.bot_token not in person.told
        config = harness.loaded()
        assert config.bots.slack.enabled
        assert config.bots.slack.bot_token == slack.bot_token
        assert config.bots.slack.app_token == slack.app_token
        assert slack.bot_token not in harness.config.read_text()
        assert mode(harness.env) == 0o600


async def test_telegram_needs_its_token_only(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        telegram.dm("hello")
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask("telegram", telegram.token, DEMO)
        assert "@parley_bot" in person.told
        assert "pairing approve" in person.told
        assert telegram.calls("getUpdates") == []
        assert telegram.backlog == 1
        assert harness.loaded().bots.telegram.bot_token == telegram.token


async def test_init_asks_whether_feishu_or_lark(tmp_path: Path) -> None:
    async with FakeFeishu() as feishu:
        harness = SetupHarness(tmp_path, {"channels": {"feishu": {"domain": feishu.url}}})
        person = await harness.ask("lark", "", feishu.app_id, feishu.app_secret, DEMO)
        assert len([q for q in person.asked if "latform" not in q and "Model" not in q]) == 3
        assert "Parley is enabled" in person.told
        assert harness.loaded().bots.feishu.app_secret == feishu.app_secret


class RecordedCheck(CredentialCheck):
    """Accepts and records everything. Replaces checks that must not call the real servers."""

    def __init__(self) -> None:
        self.tried: list[tuple[str, Mapping[str, str]]] = []

    @override
    def platform(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        self.tried.append((name, values))
        return []

    @override
    def model(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        self.tried.append((name, values))
        return []

    @override
    def speech(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        self.tried.append((name, values))
        return []

    @override
    def list_models(self, name: str, values: Mapping[str, str]) -> Sequence[str]:
        return []


def asked(*answers: str) -> tuple[SetupAnswers, ScriptedPrompter]:
    person, trials = ScriptedPrompter(*answers), RecordedCheck()
    found = prompt_for_answers(person, trials, lambda _name, _ask: None, has_models=False)
    assert person.answers == []
    chosen = [
        *found.platforms.items(),
        *([(found.model, found.model_values)] if found.model else []),
    ]
    assert trials.tried == chosen
    return found, person


@pytest.mark.parametrize(
    ("platform", "said", "domain"),
    [
        ("feishu", "", "https://open.feishu.cn"),
        ("feishu", "Lark", "https://open.larksuite.com"),
        ("feishu", "https://feishu.example.org", "https://feishu.example.org"),
        ("Lark", "", "https://open.larksuite.com"),
        ("lark", "feishu", "https://open.feishu.cn"),
    ],
)
def test_feishu_lark_or_an_address_of_its_own(platform: str, said: str, domain: str) -> None:
    found, _ = asked(platform, said, "cli_a", "b", DEMO)
    assert found.platforms == {"feishu": {"domain": domain, "app_id": "cli_a", "app_secret": "b"}}
    assert found.model is None


def test_providers_have_a_model_of_their_own_and_can_be_named() -> None:
    found, person = asked("", "9", "1", KEY, "")
    assert (found.model, found.model_values) == ("openai", {"model": "gpt-5", "api_key": KEY})
    assert "Enter a number from 1 to 4" in person.told
    found, _ = asked("", "anthropic", KEY, "claude-x")
    assert found.model_values == {"model": "claude-x", "api_key": KEY}


async def test_several_platforms_and_a_model(tmp_path: Path) -> None:
    async with FakeSlack() as slack, TelegramServer() as telegram, FakeModelServer() as model:
        channels = {**slack_at(slack)["channels"], **telegram_at(telegram)["channels"]}
        harness = SetupHarness(tmp_path, {"channels": channels})
        person = await harness.ask(
            "telegram, Slack", slack.bot_token, slack.app_token, telegram.token,
            "3", model.base_url, KEY, "fake", "",
        )  # fmt: skip
        assert "fake answered in" in person.told
        config = harness.loaded()
        assert (config.bots.slack.enabled, config.bots.telegram.enabled) == (True, True)
        (entry,) = config.agent.models
        assert (entry.name, entry.model) == ("server", "fake")
        assert entry.extra_keys()["api_key"] == KEY
        assert harness.values["MODEL_API_KEY"] == KEY
        assert KEY not in harness.config.read_text() + person.told


async def test_a_speech_service_is_asked_for_and_tried(tmp_path: Path) -> None:
    async with (
        TelegramServer() as telegram,
        FakeModelServer() as model,
        FakeSpeechServer(texts=["This is a test."]) as speech,
    ):
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask(
            "telegram", telegram.token, "3", model.base_url, "fake", KEY,
            "y", speech.base_url, "", speech.api_key,
        )  # fmt: skip
        assert "whisper-1 understood “This is a test.”" in person.told
        assert speech.api_key not in person.told + harness.config.read_text()
        voice = harness.loaded().voice
        assert (voice.base_url, voice.model) == (speech.base_url, "whisper-1")
        assert voice.api_key == speech.api_key
        assert speech.violations == []


async def test_a_speech_service_that_refuses_the_key_can_be_skipped(tmp_path: Path) -> None:
    async with (
        TelegramServer() as telegram,
        FakeModelServer() as model,
        FakeSpeechServer() as speech,
    ):
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask(
            "telegram", telegram.token, "3", model.base_url, "fake", KEY,
            "y", "ftp://x", "", KEY, "a", speech.base_url, "", KEY, "s",
        )  # fmt: skip
        assert "must start with http:// or https://" in person.told
        assert "HTTP 401: Incorrect API key provided." in person.told
        assert harness.loaded().voice.base_url is None


async def test_without_questions_the_speech_service_whose_variables_are_set(
    tmp_path: Path,
) -> None:
    async with FakeSpeechServer() as speech:
        harness = SetupHarness(tmp_path)
        await harness.take(SPEECH_BASE_URL=speech.base_url, SPEECH_API_KEY=speech.api_key)
        assert harness.loaded().voice.base_url == speech.base_url
        assert harness.values == {"SPEECH_API_KEY": speech.api_key}


async def test_a_new_configuration_is_private_and_says_where_the_keys_stand(
    tmp_path: Path,
) -> None:
    async with FakeModelServer() as model:
        harness = SetupHarness(tmp_path)
        await harness.ask("", "server", model.base_url, "", "fake")
        assert harness.config.read_text().startswith(HEADER_COMMENT)
        assert mode(harness.config) == 0o600
        assert harness.loaded().agent.models[0].extra_keys()["api_key"] == "none-needed"
        assert names(tmp_path) == [".env", "config.yaml"]


async def test_nothing_chosen_writes_nothing(tmp_path: Path) -> None:
    harness = SetupHarness(tmp_path)
    person = await harness.ask("", DEMO)
    assert "nothing was written" in person.told
    assert not harness.config.exists()
    assert harness.untouched


async def test_a_wrong_token_is_asked_for_again(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask("telegram", "1:wrong", "", telegram.token, DEMO)
        assert "@BotFather" in person.told
        assert "[a] try again" in person.asked[2]
        assert harness.values == {"TELEGRAM_BOT_TOKEN": telegram.token}


async def test_a_platform_can_be_left_out_and_a_typing_error_is_reported(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask("telegramm", "telegram", "1:wrong", "l", "7", DEMO)
        assert "did you mean telegram?" in person.told
        assert harness.untouched
        assert not harness.loaded().bots.telegram.enabled


async def test_a_model_that_refuses_the_key(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        model.reply(ModelReply(status=401))
        harness = SetupHarness(tmp_path)
        person = await harness.ask("-", "3", model.base_url, KEY, "fake", "l")
        assert "auth (HTTP 401" in person.told
        assert not harness.config.exists()


async def test_a_servers_models_are_listed_and_chosen_by_number(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        model.models = [f"model-{number}" for number in range(20)]
        harness = SetupHarness(tmp_path)
        person = await harness.ask("-", "3", model.base_url, KEY, "2")
        assert "  1  model-19\n  2  model-18\n" in person.told
        assert "… and 5 more; enter any name" in person.told
        assert harness.loaded().agent.models[0].model == "model-18"
        person = await harness.ask("-", "3", "", "", "", MODEL_API_KEY=KEY)
        assert f"[{model.base_url}]" in person.asked[2]
        assert person.asked[4] == "Model (number or name) [model-18]: "


async def test_a_servers_only_model_is_the_default(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        person = await SetupHarness(tmp_path).ask("-", "3", model.base_url, KEY, "")
        assert "[fake]" in person.asked[-1]


async def test_openais_models_are_listed_at_the_address_of_the_environment(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        model.reply(ModelReply(status=401, error_text="Incorrect API key provided."))
        harness = SetupHarness(tmp_path)
        person = await harness.ask("-", "1", KEY, "1", "s", OPENAI_BASE_URL=model.base_url)
        assert "  1  fake" in person.told
        assert person.asked[-2] == "Model (number or name) [gpt-5]: "


async def test_a_refusal_shows_the_providers_sentence_and_keeps_the_answers(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        model.reply(ModelReply(status=401, error_text="Incorrect API key provided."))
        harness = SetupHarness(tmp_path)
        person = await harness.ask("-", "3", model.base_url, KEY, "fake", "a", "", "sk-right", "")
        assert "auth (HTTP 401): Incorrect API key provided." in person.told
        assert "Error code" not in person.told
        assert person.asked[-3:] == [
            f"Base URL (http://127.0.0.1:8000/v1) [{model.base_url}]: ",
            "API key [Enter = what you entered before]: ",
            "Model (number or name) [fake]: ",
        ]
        assert harness.values == {"MODEL_API_KEY": "sk-right"}


async def test_a_provider_without_its_variables_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="OpenAI: set OPENAI_API_KEY"):
        await SetupHarness(tmp_path).take("--model", "openai")


def test_a_package_that_is_missing_is_named() -> None:
    step = SetupStep(title="X", fields=(), package="no_such_package")
    (finding,) = check_package(step)
    assert "pip install no-such-package" in finding.fix


async def test_tokens_of_the_environment_can_be_kept_by_enter(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask("telegram", "", DEMO, TELEGRAM_BOT_TOKEN=telegram.token)
        assert "[Enter = use TELEGRAM_BOT_TOKEN]" in person.asked[1]
        assert telegram.token not in "".join(person.asked)
        assert harness.values == {"TELEGRAM_BOT_TOKEN": telegram.token}


async def test_a_variable_that_hides_the_new_value_is_reported(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        person = await harness.ask("telegram", telegram.token, DEMO, TELEGRAM_BOT_TOKEN="1:old")
        assert "Note: TELEGRAM_BOT_TOKEN is set in the environment" in person.told


async def test_the_variable_that_the_configuration_names_is_offered_and_asked_for(
    tmp_path: Path,
) -> None:
    async with TelegramServer() as telegram:
        tree = telegram_at(telegram)
        tree["channels"]["telegram"]["bot_token"] = "$MY_BOT"
        harness = SetupHarness(tmp_path, tree)
        with pytest.raises(CommandFailed, match="Telegram: set MY_BOT; nothing"):
            await harness.take("--platform", "telegram", TELEGRAM_BOT_TOKEN="1:other")
        person = await harness.ask("telegram", "", DEMO, MY_BOT=telegram.token)
        assert "[Enter = use MY_BOT]" in person.asked[1]
        assert harness.values == {"MY_BOT": telegram.token}


EXISTING = """\
# mine
log_level: debug   # loud
channels:
  # the bot
  telegram:
    enabled: false
    bot_token: $MY_BOT
    allowed_users: ["42"]
    base_url: {base_url}
    base_file_url: {base_file_url}
"""


async def test_existing_settings_keep_their_values_and_comments(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        urls = {"base_url": telegram.base_url, "base_file_url": telegram.base_file_url}
        harness = SetupHarness(tmp_path, EXISTING.format(**urls))
        harness.config.chmod(0o640)
        harness.env.write_text("OTHER=1\n# note\n")
        await harness.ask("telegram", telegram.token, DEMO)
        text = harness.config.read_text()
        assert text == EXISTING.format(**urls).replace("enabled: false", "enabled: true")
        assert mode(harness.config) == 0o640
        assert harness.env.read_text() == f"OTHER=1\n# note\nMY_BOT={telegram.token}\n"
        assert (tmp_path / "config.yaml.bak").read_text() == EXISTING.format(**urls)


async def test_nothing_is_replaced_silently(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        harness.env.write_text("TELEGRAM_BOT_TOKEN=1:old\n")
        person = ScriptedPrompter("telegram", telegram.token, DEMO, "n")
        with pytest.raises(CommandFailed, match="nothing was written"):
            await harness._run(person, [], {})
        assert "TELEGRAM_BOT_TOKEN in .env" in person.asked[-1]
        assert harness.values["TELEGRAM_BOT_TOKEN"] == "1:old"
        with pytest.raises(CommandFailed, match="--force"):
            await harness.take(TELEGRAM_BOT_TOKEN=telegram.token)
        await harness.take("--force", TELEGRAM_BOT_TOKEN=telegram.token)
        assert harness.values["TELEGRAM_BOT_TOKEN"] == telegram.token
        again = await harness.take(TELEGRAM_BOT_TOKEN=telegram.token)
        assert "already up to date" in again.told


async def test_without_questions_each_platform_whose_variables_are_set(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeModelServer() as model:
        harness = SetupHarness(tmp_path, slack_at(slack))
        await harness.take(
            SLACK_BOT_TOKEN=slack.bot_token,
            SLACK_APP_TOKEN=slack.app_token,
            MODEL_BASE_URL=model.base_url,
            MODEL_NAME="fake",
        )
        config = harness.loaded()
        assert (config.bots.slack.enabled, config.bots.telegram.enabled) == (True, False)
        assert [entry.name for entry in config.agent.models] == ["server"]


async def test_without_questions_what_is_missing_or_wrong_ends_it(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        with pytest.raises(CommandFailed, match="TELEGRAM_BOT_TOKEN"):
            await harness.take("--platform", "telegram")
        with pytest.raises(CommandFailed, match="@BotFather"):
            await harness.take("--platform", "telegram", TELEGRAM_BOT_TOKEN="1:wrong")
        with pytest.raises(CommandFailed, match="SLACK_BOT_TOKEN and SLACK_APP_TOKEN"):
            await harness.take("--platform", "slack", "--model", "none")
        assert harness.untouched


async def test_an_invalid_configuration_is_reported_before_anything_is_written(
    tmp_path: Path,
) -> None:
    async with TelegramServer() as telegram:
        tree = {**telegram_at(telegram), "gateway": {"port": "x"}}
        harness = SetupHarness(tmp_path, tree)
        with pytest.raises(CommandFailed, match=r"config\.yaml: gateway\.port"):
            await harness.ask("telegram", telegram.token, DEMO)
        assert harness.untouched
        harness = SetupHarness(tmp_path, "channels: [a]")
        with pytest.raises(ConfigUpgradeError):
            await harness.ask()
        assert harness.untouched


@pytest.mark.parametrize("value", ["plain-1:2", "a b", "it's", 'say "x" #1', "a\\b", "$HOME", "ü"])
def test_any_value_comes_back_from_the_env_file(tmp_path: Path, value: str) -> None:
    file = tmp_path / ".env"
    write_drafts([env_draft(file, {"A": value, "B": "2"})])
    assert dotenv_values(file) == {"A": value, "B": "2"}
    assert env_draft(file, {"A": value}).changed is False


def test_an_exported_or_repeated_variable_is_set_where_it_takes_effect(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("export A=1\nAA=2\nA=3")
    draft = env_draft(file, {"A": "4"})
    assert draft.replaced_keys == ["A"]
    write_drafts([draft])
    assert dotenv_values(file) == {"A": "4", "AA": "2"}


def test_a_model_of_the_same_name_is_replaced_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "models:\n  - {name: gpt, model: old, use: 'a:b'}\n  - {name: c, model: m, use: 'a:b'}\n"
    )
    draft = config_draft(file, {}, {"name": "gpt", "model": "new", "use": "a:b"})
    assert draft.replaced_keys == ["models[0] (gpt)"]
    assert [m["name"] for m in yaml.safe_load(draft.new_text)["models"]] == ["gpt", "c"]
    draft = config_draft(file, {}, {"name": "d", "model": "new", "use": "a:b"})
    assert [m["name"] for m in yaml.safe_load(draft.new_text)["models"]] == ["d", "gpt", "c"]


def test_a_new_configuration_with_a_model_has_web_tools_without_keys(tmp_path: Path) -> None:
    model = {"name": "gpt", "model": "m", "use": "a:b"}
    tools = yaml.safe_load(config_draft(tmp_path / "config.yaml", {}, model).new_text)["tools"]
    assert [tool["name"] for tool in tools] == ["web_search", "web_fetch"]
    assert len(configured_tools([ToolConfig.model_validate(tool) for tool in tools])) == len(tools)
    assert "tools" not in config_draft(tmp_path / "config.yaml", {("a",): 1}, None).new_text


def test_a_folder_that_refuses_leaves_both_files_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "config.yaml"
    with pytest.raises(OSError, match="gone"):
        write_drafts(
            [env_draft(tmp_path / ".env", {"A": "1"}), config_draft(file, {("a",): 1}, None)]
        )
    assert names(tmp_path) == []


async def test_the_file_that_the_environment_names_is_made(tmp_path: Path) -> None:
    async with FakeModelServer() as model:
        given = build_parser().parse_args(["init"])
        given.config = None
        file = tmp_path / "of-mine.yaml"
        environ = {"PARLEY_CONFIG": str(file)}
        person = ScriptedPrompter("", "3", model.base_url, "", "fake")
        await anyio.to_thread.run_sync(run_setup, given, person, environ)
        assert load_config(None, environ).agent.models[0].name == "server"
        assert names(tmp_path) == [".env", "of-mine.yaml"]


def test_a_missing_folder_is_reported_before_any_question(tmp_path: Path) -> None:
    given = build_parser().parse_args(["init", "--config", str(tmp_path / "gone" / "config.yaml")])
    person = ScriptedPrompter()
    with pytest.raises(CommandFailed, match="gone: no such folder"):
        run_setup(given, person, {})
    assert person.asked == []


def test_a_broken_file_ends_it_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: [")
    assert main(["init", "--non-interactive", "--config", str(file)]) == 1
    line = one_line(capsys.readouterr().err)
    assert str(file) in line
    assert "nothing was written" in line


async def test_through_a_pipe_each_line_is_an_answer(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        said = f"telegram\n{telegram.token}\n{DEMO}\n"
        code, out, err = await anyio.to_thread.run_sync(
            lambda: parley(tmp_path, "init", stdin=said)
        )
        assert (code, err) == (0, "")
        assert f"Written: {harness.env} (readable by you only)" in out
        assert telegram.token not in out
        assert harness.loaded().bots.telegram.enabled


def test_an_input_that_ends_early_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(os.devnull) as nothing:  # noqa: PTH123
        monkeypatch.setattr("sys.stdin", nothing)
        assert main(["init", "--config", str(tmp_path / "config.yaml")]) == 1
    assert "the input ended" in one_line(capsys.readouterr().err)
    assert names(tmp_path) == []


async def test_at_a_terminal_tokens_stay_hidden_and_ctrl_c_leaves_everything_as_it_is(
    tmp_path: Path,
) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        before = harness.config.read_text()
        async with at_a_terminal(harness.config, tmp_path / "home", "init") as terminal:
            await terminal.sees("Which platforms?")
            terminal.type("telegram\n")
            await terminal.sees("Bot token (123456:ABC...): ")
            terminal.type(f"{telegram.token}\n")
            shown = await terminal.sees("@parley_bot", "Model [4]: ")
            assert telegram.token not in shown
            terminal.type(CTRL_C)
            await terminal.sees("Nothing was written.")
            assert await terminal.leaves() == 130
        assert harness.config.read_text() == before
        assert harness.untouched


async def test_input_typed_during_a_check_is_not_shown(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        harness = SetupHarness(tmp_path, telegram_at(telegram))
        telegram.fail("getMe", times=1, delay_s=1.0)
        async with at_a_terminal(harness.config, tmp_path / "home", "init") as terminal:
            await terminal.sees("Which platforms?")
            terminal.type("telegram\n")
            await terminal.sees("Bot token (123456:ABC...): ")
            terminal.type(f"{telegram.token}\n")
            await terminal.sees("Checking...")
            await telegram.wait_for(lambda: bool(telegram.calls("getMe")))
            terminal.type(f"{telegram.token}\n")
            shown = await terminal.sees("Model [4]: ")
            assert telegram.token not in shown
            terminal.type(CTRL_C)
            assert await terminal.leaves() == 130
