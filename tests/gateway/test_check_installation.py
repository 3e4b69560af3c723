"""`parley check` finds problems in the data folder and in configured code."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.checks.configuration import find_config_problems
from gateway.config import load_config
from tests.gateway.test_cli import ROOT, environment, parley
from tests.ports import free_port

MODEL = "models: [{name: a, use: 'langchain_openai:ChatOpenAI', model: m, api_key: sk-secret, KEY}]"


def _write(home: Path, name: str, content: bytes = b"") -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_bytes(content)


def _problems(folder: Path, text: str = "{}") -> list[str]:
    (folder / "config.yaml").write_text(text, "utf-8")
    config = load_config(str(folder / "config.yaml"), {"PARLEY_HOME": str(folder / "home")})
    return list(find_config_problems(config))


BROKEN: dict[str, Callable[[Path], object]] = {
    "home/agents/helper: the agent helper: config.yaml is not valid YAML": lambda home: _write(
        home, "agents/helper/config.yaml", b"description: [a\n  b: {"
    ),
    "home/agents/helper: SOUL.md is not UTF-8": lambda home: _write(
        home, "agents/helper/SOUL.md", b"\xff\xfe"
    ),
    "home/agents/helper: There is no model named 'nope'": lambda home: _write(
        home, "agents/helper/config.yaml", b"model: nope"
    ),
    "home/agents/helper: There is no tool group named 'zzz'": lambda home: _write(
        home, "agents/helper/config.yaml", b"tool_groups: [zzz]"
    ),
    "home: USER.md is not UTF-8": lambda home: _write(home, "USER.md", b"\xff\xfe"),
    "home/agents: is not a folder": lambda home: _write(home, "agents"),
    "home/threads: is not a folder": lambda home: _write(home, "threads"),
    "home/memory: is not a folder": lambda home: _write(home, "memory"),
    "home/audit.log: is not a file": lambda home: (home / "audit.log").mkdir(),
    "home/parley.log: is not a file": lambda home: (home / "parley.log").mkdir(),
    "home/parley.db: is not a file": lambda home: (home / "parley.db").mkdir(),
    "credentials.key is not a key of 32 bytes": lambda home: _write(
        home, "credentials.key", b"junk"
    ),
    "webhook_key: webhooks of runs cannot be signed": lambda home: _write(home, "webhook_key"),
    "home/webhook_key: webhooks of runs cannot": lambda home: (home / "webhook_key").mkdir(),
    "home/skills/custom/bad: the frontmatter is not valid YAML": lambda home: _write(
        home, "skills/custom/bad/SKILL.md", b"---\nname: [\n---\n"
    ),
}


@pytest.mark.parametrize("told", BROKEN)
def test_a_broken_data_folder_is_reported(tmp_path: Path, told: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert _problems(tmp_path) == []
    BROKEN[told](home)
    (problem,) = _problems(tmp_path)
    assert told in problem


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("channels: {slack: {enabeld: true}}", "channels.slack.enabeld: unknown key, ignored; did you mean `enabled`?"),
        ("gatway: {port: 1}", "gatway: unknown key, ignored; did you mean `gateway`?"),
        ("memory: {wholly: other}", "memory.wholly: unknown key, ignored"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_an_error_of_the_check(tmp_path: Path, text: str, told: str) -> None:
    (problem,) = _problems(tmp_path, text)
    assert told in problem
    code, output, errors = parley(tmp_path, "check")
    assert (code, told in errors, "No problems found." in output) == (1, True, False)


def _model(**keys: object) -> str:
    entry = {
        "name": "a",
        "use": "langchain_openai:ChatOpenAI",
        "model": "m",
        "api_key": "sk-secret",
    }
    return json.dumps({"models": [{**entry, **keys}]})


CLASS = "not an argument of ChatOpenAI"
OWN_API = "; if the provider's API knows it, put it below `model_kwargs` or `extra_body`"


@pytest.mark.parametrize(
    ("text", "path", "told"),
    [
        (_model(temprature=0), "models[0].temprature", f"{CLASS}; did you mean `temperature`?"),
        (_model(api_ke="s"), "models[0].api_ke", f"{CLASS}; did you mean `api_key`?"),
        (_model(parallel_tool_calls=True), "models[0].parallel_tool_calls", CLASS + OWN_API),
        (
            _model(when_thinking_enabled={"reasonin": {}}),
            "models[0].when_thinking_enabled.reasonin",
            f"{CLASS}; did you mean `reasoning`?",
        ),
        (_model(display_nam="A"), "models[0].display_nam", "ignored; did you mean `display_name`?"),
        ("sandbox: {memory_gb: 1}", "sandbox.memory_gb", "ignored; did you mean `memory_mb`?"),
        (
            "channels: {session: {config: {recursion_limt: 9}}}",
            "channels.session.config.recursion_limt",
            "ignored; did you mean `recursion_limit`?",
        ),
        (
            "channels: {slack: {chats: {C1: {thread_followup: all}}}}",
            "channels.slack.chats.C1.thread_followup",
            "ignored; did you mean `thread_followups`?",
        ),
    ],
)
def test_a_misspelled_key_at_any_depth_is_an_error_of_the_check(
    tmp_path: Path, text: str, path: str, told: str
) -> None:
    assert _problems(tmp_path, text) == [f"{tmp_path / 'config.yaml'}: {path}: unknown key, {told}"]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ('{"mcpServer": {}}', "mcpServer: unknown key, ignored; did you mean `mcpServers`?"),
        (
            '{"mcpServers": {"a": {"url": "http://127.0.0.1:9", "heders": {}, "alwaysAllow": []}}}',
            "mcpServers.a.heders: unknown key, ignored; did you mean `headers`?",
        ),
    ],
)
def test_a_misspelled_key_of_the_extensions_file_is_an_error(
    tmp_path: Path, document: str, told: str
) -> None:
    (tmp_path / "extensions_config.json").write_text(document)
    assert _problems(tmp_path) == [f"{tmp_path / 'extensions_config.json'}: {told}"]


def test_an_invalid_model_is_not_shown_as_the_demo(tmp_path: Path) -> None:
    code, output, _ = parley(tmp_path, "check", config="models: [{name: gpt}]")
    assert code == 2
    assert "demo" not in output
    assert "invalid entries in `models`" in output


def test_an_extensions_file_that_is_a_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "extensions_config.json").mkdir()
    (problem,) = _problems(tmp_path)
    assert "the extensions file cannot be read: Is a directory" in problem


def test_an_interceptor_that_cannot_be_imported_is_reported(tmp_path: Path) -> None:
    (tmp_path / "extensions_config.json").write_text('{"mcpInterceptors": ["no_such:thing"]}')
    (problem,) = _problems(tmp_path)
    assert "Could not import module no_such" in problem


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MODEL.replace("KEY", "temperature: hot"), "models: a: temperature: Input should be"),
        (MODEL.replace("KEY", "base_url: 'localhost:1/v1'"), "models[0].base_url: must start with"),
        ("sandbox: {use: provisioner}", "sandbox.provisioner.url: set the provisioner's address"),
        (
            "sandbox: {use: 'deerflow.community.aio_sandbox:AioSandboxProvider',"
            " provisioner_url: 'http://127.0.0.1:9', provisioner_api_key: secret}",
            "sandbox.provisioner.url: http://127.0.0.1:9 does not respond",
        ),
        ("skills: {path: /no/such/skills}", "skills.path: there is no folder /no/such/skills"),
        (
            "channels: {feishu: {enabled: true, app_id: cli_a, app_secret: b, domain: open.feishu.cn}}",
            "channels.feishu.domain: must start with http:// or https://",
        ),
        (
            "channels: {telegram: {enabled: true, bot_token: '1:secret', base_url: api.telegram.org/bot}}",
            "channels.telegram.base_url: must start with http:// or https://",
        ),
    ],
)
def test_settings_that_would_fail_at_the_first_message_are_reported(
    tmp_path: Path, text: str, told: str
) -> None:
    (problem,) = _problems(tmp_path, text)
    assert told in problem
    assert "secret" not in problem


CODE = {
    "tools: [{name: x, group: web, use: 'broken:tool'}]": "tools[0].use: Could not import module broken:",
    "models: [{name: x, use: 'broken:Chat', model: m}]": "models[0].use: Could not import module broken:",
    "sandbox: {use: 'broken:Sandbox'}": "sandbox.use: Could not import module broken:",
    "guardrails: {enabled: true, provider: {use: 'broken:Guard'}}": "Could not import module broken:",
    "graphs: {own: 'broken:graph'}": "graphs.own: Could not import module broken:",
    "graphs: {own: './broken.py:graph'}": "graphs.own: ",
    "tools: [{name: x, group: web, use: 'fails:build'}]": "tools: x: fails:build cannot be built",
    "sandbox: {use: 'fails:build'}": "sandbox.use: fails:build cannot be built: RuntimeError",
    "guardrails: {enabled: true, provider: {use: 'fails:build'}}": "fails:build cannot be built",
}


@pytest.mark.parametrize("config", CODE)
@pytest.mark.parametrize("way", ["raise RuntimeError('boom')", "raise SystemExit(3)"])
def test_failing_code_of_the_configuration_is_reported(
    tmp_path: Path, config: str, way: str
) -> None:
    (tmp_path / "broken.py").write_text(f"{way}\n")
    (tmp_path / "fails.py").write_text("def build(**keys):\n    raise RuntimeError('boom')\n")
    code, _, err = parley(
        tmp_path, "check", config=config, PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}"
    )
    assert (code, "Traceback" in err, CODE[config] in err) == (1, False, True), err


def test_an_unknown_sandbox_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    code, _, err = parley(tmp_path, "check", config="sandbox: {use: nope}")
    assert (code, err.splitlines()) == (
        2,
        [
            f"parley: {tmp_path / 'config.yaml'}: sandbox.use: must be auto, bubblewrap, local, docker or"
            " provisioner, or module:Class of your own"
        ],
    )


def test_a_broken_line_of_dotenv_is_a_problem_and_its_text_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A_KEY=1\nsk-secret-key\n")
    code, out, err = parley(tmp_path, "check", config="log_level: info")
    line = f"{tmp_path / '.env'}: line 2: is not of the form NAME=value, so it is ignored: correct or remove it"
    assert (code, err) == (1, f"parley: {line}\n")
    assert "No problems found" not in out
    assert "sk-secret-key" not in out


def test_a_custom_sandbox_is_named_by_its_class(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from agent.sandbox.protocol import SandboxProvider\n"
        "class BoxesOfMine(SandboxProvider):\n"
        "    def __init__(self, config, folders, shared):\n"
        "        pass\n"
    )
    code, out, err = parley(
        tmp_path,
        "check",
        config="sandbox: {use: 'own:BoxesOfMine'}",
        PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
    )
    assert (code, err) == (0, "")
    assert any("sandbox" in line and "BoxesOfMine" in line for line in out.splitlines()), out


WITHOUT_OVERRIDE = [
    "setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all",
]  # fmt: skip
"""Runs a command as root without the capability to read other users' files."""

PARLEY = [*WITHOUT_OVERRIDE, sys.executable, "-m", "gateway"]


FOREIGN = ["parley.db", "parley.lock", "checkpoints.db-wal", "audit.log", "memory", "threads"]


def _of_another_user(home: Path, names: list[str]) -> None:
    home.mkdir(mode=0o700)
    for name in names:
        if name in ("memory", "threads"):
            (home / name).mkdir(mode=0o700)
        else:
            (home / name).touch(mode=0o600)
        os.chown(home / name, 65534, 65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
def test_files_of_another_user_are_reported(tmp_path: Path) -> None:
    home = tmp_path / "home"
    _of_another_user(home, FOREIGN)
    done = subprocess.run(
        [*PARLEY, "check"],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = ": cannot be read and written by this user: correct its owner and permissions"
    expected = {f"parley: {home / name}{told}" for name in FOREIGN}
    assert (done.returncode, {*done.stderr.splitlines()} - {""}) == (1, expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
@pytest.mark.parametrize("name", ["parley.db", "parley.lock"])
def test_a_service_ends_in_one_line_that_names_a_file_of_another_user(
    tmp_path: Path, name: str
) -> None:
    _of_another_user(tmp_path / "home", [name])
    done = subprocess.run(
        [*PARLEY, "serve", "--port", str(free_port())],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("parley: ")]
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert lines == [
        f"parley: The file {tmp_path / 'home' / name} cannot be used (Permission denied)."
        " Make this user its owner, or move it away."
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
def test_a_service_starts_beside_folders_of_another_user(tmp_path: Path) -> None:
    _of_another_user(tmp_path / "home", ["memory", "threads"])
    process = subprocess.Popen(
        [*PARLEY, "serve", "--port", str(free_port())],
        cwd=tmp_path, env=environment(tmp_path, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process, process.stdout as output:
        assert "Parley is running" in output.readline()
        process.terminate()
        output.read()
    assert process.returncode == 0
