"""/api/configuration: the configuration in force, and the editor of the file."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import anyio
import pytest

from gateway.checks.configuration import find_config_problems
from gateway.config import Config
from gateway.config_editor import ConfigEditor
from gateway.config_reload import ConfigReloader
from tests.gateway.composed import ComposedService, composed

TEXT = """\
# My configuration
log_level: info  # how much
models: [{name: a, use: "agent.models.demo:DemoChatModel", model: a}]
channels:
  telegram: {enabled: false, bot_token: "12345:hush-hush-hush"}
"""


@asynccontextmanager
async def edited(folder: Path, text: str = TEXT) -> AsyncIterator[tuple[ComposedService, Path]]:
    async with composed(folder, text) as service:
        applied: list[Config] = []
        services = service.services
        reload = ConfigReloader(
            services.config, services.agents, on_applied=applied.append, overrides={}
        )
        find = partial(find_config_problems, loads_graphs=False)
        service.app.state.config_editor = ConfigEditor(reload, find)
        yield service, folder / "config.yaml"


async def get(service: ComposedService, path: str) -> Any:  # noqa: ANN401 - JSON
    response = await service.client.get(f"/api/configuration{path}")
    assert response.status_code == 200, response.text
    assert "hush-hush" not in response.text
    return response.json()


async def post(
    service: ComposedService,
    path: str,
    body: object,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> Any:  # noqa: ANN401 - JSON
    response = await service.client.request(
        method, f"/api/configuration{path}", json=body, headers=headers
    )
    assert response.status_code == 200, response.text
    assert "hush-hush" not in response.text
    return response.json()


def audited(service: ComposedService) -> list[tuple[str, int, str]]:
    lines = service.services.config.audit_file.read_text().splitlines()
    return [(one["action"], one["status"], one["detail"]) for one in map(json.loads, lines)]


async def test_the_configuration_in_force_with_its_sources(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, file):
        rows = {row["key"]: row for row in (await get(service, ""))["rows"]}
        assert (await get(service, "?key=TELEGRAM.bot"))["rows"] == [
            rows["channels.telegram.bot_token"]
        ]
    level = rows["log_level"]
    assert (level["value"], level["origin"], level["file"], level["line"]) == (
        "info", "file", str(file), 2,
    )  # fmt: skip
    assert level["source"] == "config.yaml:2"
    assert level["description"].startswith("debug, info")
    assert rows["channels.telegram.bot_token"]["value"] == "***"
    assert rows["gateway.port"]["origin"] == "default"
    assert rows["gateway.port"]["needs_restart"] is True
    assert rows["title.max_words"]["needs_restart"] is False


async def test_a_text_is_checked_beside_its_lines(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, _):
        text = (await get(service, "/file"))["text"]
        text = text.replace("log_level: info", "log_level: loud").replace("models", "modles")
        text += "  slak: {enabled: true}\ntools: [{name: x, group: g, use: 'no_such:thing'}]\n"
        found = await post(service, "/check", {"text": text})
        marks = {(one["line"], one["prevents_saving"]): one["message"] for one in found["findings"]}
        assert marks[2, True].startswith("log_level: must be 'debug'")
        assert marks[3, True] == "modles: unknown key, ignored; did you mean `models`?"
        assert marks[6, True] == "channels.slak: unknown key, ignored; did you mean `slack`?"
        assert "no_such" in marks[7, False]
        assert "-log_level: info  # how much" in found["difference"]
        assert "+log_level: loud  # how much" in found["difference"]
        broken = await post(service, "/check", {"text": "a: [\n"})
        assert broken["findings"][0]["line"] > 0
        assert await post(service, "/check", {"text": (await get(service, "/file"))["text"]}) == {
            "findings": [], "difference": [], "restart": [],
        }  # fmt: skip
    assert not service.services.config.audit_file.exists()


CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}
EDITS = {
    "a: [": "：请改正 YAML",
    "- a": "顶层必须由 `key: value` 行组成",
    "log_level: info\nlog_level: info": "配置项 `log_level` 重复，以最后的值为准",
    "zzzzzz: 1": "zzzzzz: 未知的配置项，会被忽略",
    "titel: {}": "titel: 未知的配置项，会被忽略；是否想写 `title`？",
    "title: 5": "title: 必须由 `key: value` 行组成",
    "models: 5": "models: 必须是列表，如 [a, b]",
    "title: {enabled: 5}": "title.enabled: 必须是 true 或 false",
    "title: {max_words: many}": "title.max_words: 必须是整数",
    "title: {max_words: 0}": "title.max_words: 必须大于或等于 1",
    "gateway: {port: 70000}": "gateway.port: 必须小于或等于 65535",
    "log_level: loud": "log_level: 必须是 'debug', 'info', 'warning' 或 'error'",
    "models: [{name: a}]": "models[0].use: 缺失：请添加",
    "models: [{name: '', use: 'a:b', model: c}]": "models[0].name: 不能为空",
    "models: [{name: [], use: 'a:b', model: c}]": "models[0].name: 必须是文本",
    "channels: {telegram: {enabled: true, bot_token: $NOT_SET}}": "环境变量 NOT_SET 未设置：请设置它",
    "gateway: {required_channels: [slak]}": "gateway.required_channels: 没有启用的渠道 'slak'",
    "models: [{name: fast, use: 'agent.models.demo:DemoChatModel', model: a}]\n"
    "channels: {telegram: {enabled: true, bot_token: '123:a', models: [fost]}}": "没有模型 'fost'；是否想写 'fast'？",
    "title: {model_name: <hidden-7>}": "<hidden-7> 不对应此文件中的密钥：请写出值",
    "channels: {telegram: {enabled: true, bot_token: hush}}": "不是 @BotFather 给出的机器人令牌",
}
"""Texts written into the file, and their error messages in Chinese."""


@pytest.mark.parametrize(("text", "message"), EDITS.items())
async def test_what_is_found_is_said_in_chinese(tmp_path: Path, text: str, message: str) -> None:
    async with edited(tmp_path, "log_level: info\n") as (service, _):
        found = await post(service, "/check", {"text": text}, headers=CHINESE)
        assert message in "\n".join(one["message"] for one in found["findings"])


async def test_what_became_of_a_change_is_said_in_chinese(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, _):
        shown = await get(service, "/file")
        text = shown["text"].replace("max_words", "").replace("enabled: false", "enabled: true")

        async def change(path: str, body: dict[str, str]) -> str:
            method = "PUT" if path == "/file" else "POST"
            answer = await service.client.request(
                method, f"/api/configuration{path}", json=body, headers=CHINESE
            )
            return str(answer.json().get("message") or answer.json().get("detail"))

        assert await change("/undo", {"version": shown["version"]}) == "没有上一个版本。"
        assert (
            await change("/file", {"text": "titel: {}", "version": shown["version"]})
            == "titel: 未知的配置项，会被忽略；是否想写 `title`？"
        )
        assert (
            await change("/file", {"text": text, "version": "old"})
            == "文件在此期间被改动，请重新加载。"
        )
        saved = await change("/file", {"text": text, "version": shown["version"]})
        assert saved == "文件已保存。 以下部分在服务重启后生效：channels。"
        version = (await get(service, "/file"))["version"]
        assert await change("/undo", {"version": version}) == "已恢复上一个版本。 现已生效。"
        values = {
            "log_level": ("a\nb", "值必须是一行：请在文本中修改"),
            "models[3].name": ("a", "models[3].name: 列表中没有此项：请在文本中添加"),
            "models.name": ("a", "models.name: 属于列表：请在文本中修改"),
            "log_level.a": ("b", "此节是单个值：请在文本中修改"),
            "models[0].model": ("a, b: c", "值在此处会有别的含义：请加引号"),
            "channels": ("1", "值有多行：请在文本中修改"),
        }
        for key, (value, said) in values.items():
            assert await change("/check/key", {"text": TEXT, "key": key, "value": value}) == said
        broken = {"text": "a: [", "key": "b", "value": "1"}
        assert await change("/check/key", broken) == "文本不是 YAML：请先改正"


async def test_a_saved_text_is_applied_and_undone(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, file):
        file.chmod(0o640)
        shown = await get(service, "/file")
        assert (shown["problem"], shown["has_previous"]) == ("", False)
        keyed = {"text": shown["text"], "key": "title.max_words", "value": "9"}
        text = (await post(service, "/check/key", keyed))["text"]
        text = text.replace("enabled: false", "enabled: false, streaming: true")
        saved = await post(
            service, "/file", {"text": text, "version": shown["version"]}, method="PUT"
        )
        assert saved["changed"] == ["title.max_words", "channels.telegram.streaming"]
        assert (saved["problems"], saved["restart"]) == ([], ["channels"])
        assert saved["message"] == "The file is saved. Restart the service for: channels."
        assert file.stat().st_mode & 0o777 == 0o640
        assert (
            file.read_text()
            == TEXT.replace("enabled: false", "enabled: false, streaming: true")
            + "title:\n  max_words: 9\n"
        )
        assert service.services.agent_services.config.get().title.max_words == 9
        rows = {row["key"]: row for row in (await get(service, "?key=streaming"))["rows"]}
        waiting = rows["channels.telegram.streaming"]
        assert (waiting["value"], waiting["waits_for_restart"]) == (False, True)
        undone = await post(service, "/undo", {"version": saved["version"]})
        assert file.read_text() == TEXT
        assert service.services.agent_services.config.get().title.max_words == 6
        assert undone["version"] == shown["version"]
    assert audited(service) == [
        ("PUT /api/configuration/file", 200, "changed: title.max_words, channels.telegram.streaming"),
        ("POST /api/configuration/undo", 200, "changed: title.max_words, channels.telegram.streaming"),
    ]  # fmt: skip


async def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, file):
        shown = await get(service, "/file")
        file.write_text(TEXT + "log_format: json\n")
        body = {"text": shown["text"], "version": shown["version"]}
        refused = await service.client.put("/api/configuration/file", json=body)
        assert (refused.status_code, refused.json()["detail"]) == (
            409,
            "The file has changed: load it again.",
        )
        refused = await service.client.post("/api/configuration/undo", json=body)
        assert refused.status_code == 409
        assert file.read_text().endswith("json\n")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("log_level: info", "log_level: loud", "log_level: must be"),
        ("log_level: info", "log_levl: info", "did you mean `log_level`?"),
        ("model: a", "model: <hidden-7>", "line 3: <hidden-7>"),
        ("model: a", f"model: <hidden-{'9' * 5000}>", "stands for no secret of this file"),
        (
            "model: a",
            "model: <hidden-1>",
            "line 3: <hidden-1> stands for the secret of another key",
        ),
        ("level: info", "level: <hidden-1>", "line 2: <hidden-1> stands for the secret of another"),
        ("model: a", "api_key: <hidden-1>", "stands for the secret of another key"),
        ("model: a", "base_url: 'http://x:<hidden-1>@x'", "stands for the secret of another key"),
        ("log_level: info", "<hidden-1>: info", "stands for the secret of another key"),
        ("log_level: info", "log_level: !<hidden-1> info", "stands for the secret of another key"),
        (
            "My configuration",
            "<hidden-1>",
            "line 1: <hidden-1> stands for the secret of another key",
        ),
        ("name: a", "name: *<hidden-1>", "expected alphabetic or numeric character"),
        ("log_level: info", "log_level: 2024-13-45", "line 2, column 12: the value is impossible"),
        ("log_level: info", "log_level: !!bool x", "line 2, column 12: the value is impossible"),
        ("log_level: info", f"log_level: {'9' * 5000}", "the value is impossible for its type"),
        ("log_level: info", "tools: &a [*a]", "a section contains an alias of itself"),
        ("model: a", "model: $NOT_SET", "the environment variable NOT_SET is not set"),
    ],
)
async def test_what_the_service_would_not_use_is_not_saved(
    tmp_path: Path, before: str, after: str, why: str
) -> None:
    async with edited(tmp_path) as (service, file):
        shown = await get(service, "/file")
        body = {"text": shown["text"].replace(before, after), "version": shown["version"]}
        refused = await service.client.put("/api/configuration/file", json=body)
        assert refused.status_code == 422
        assert why in refused.json()["detail"]
        assert file.read_text() == TEXT
        assert not file.with_name("config.yaml.bak").exists()


@pytest.mark.parametrize("key", [".", "[", "[0]", "a..b", "a.", ".a", "a[x]", "a[0]b", "]"])
async def test_what_is_no_key_is_refused(tmp_path: Path, key: str) -> None:
    async with edited(tmp_path) as (service, _):
        body = {"text": TEXT, "key": key, "value": "1"}
        refused = await service.client.post("/api/configuration/check/key", json=body)
        assert (refused.status_code, "not a key" in refused.json()["detail"]) == (422, True)


async def test_a_secret_moves_with_its_entry_and_into_a_comment_and_back(tmp_path: Path) -> None:
    text = """\
models:
  - {name: a, use: "agent.models.demo:DemoChatModel", model: a, api_key: hush-hush-a}
  - {name: b, use: "agent.models.demo:DemoChatModel", model: b, api_key: hush-hush-b}
"""

    async with edited(tmp_path, text) as (service, file):

        async def save(*changes: tuple[str, str]) -> str:
            shown = await get(service, "/file")
            changed = str(shown["text"])
            for before, after in changes:
                assert before in changed
                changed = changed.replace(before, after)
            body = {"text": changed, "version": shown["version"]}
            await post(service, "/file", body, method="PUT")
            return file.read_text()

        _, first, second = text.splitlines(keepends=True)
        marked = (
            first.replace("hush-hush-a", "<hidden-1>"),
            second.replace("hush-hush-b", "<hidden-2>"),
        )
        assert (
            await save(("".join(marked), "".join(reversed(marked)))) == f"models:\n{second}{first}"
        )
        commented = await save((", api_key: <hidden-1>}", "}  # api_key: <hidden-1>"))
        assert "}  # api_key: hush-hush-b\n" in commented
        again = await save(("}  # api_key: <hidden-1>", ", api_key: <hidden-1>}"))
        assert again == f"models:\n{second}{first}"


async def test_a_change_that_the_agent_cannot_use_is_told(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, _):
        shown = await get(service, "/file")
        text = shown["text"] + "tools: [{name: x, group: g, use: 'no_such:thing'}]\n"
        saved = await post(
            service, "/file", {"text": text, "version": shown["version"]}, method="PUT"
        )
        assert "no_such" in saved["problems"][0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file")
@pytest.mark.parametrize(("mode", "why"), [("ro", "is read-only here"), ("rw", "busy")])
async def test_a_file_that_a_container_mounts_cannot_be_saved(
    tmp_path: Path, mode: str, why: str
) -> None:
    async with edited(tmp_path) as (service, file):
        try:
            await anyio.run_process(["mount", "--bind", str(file), str(file)])
        except CalledProcessError:
            pytest.skip("mounting is not allowed here")
        try:
            await anyio.run_process(["mount", "-o", f"remount,bind,{mode}", str(file)])
            shown = await get(service, "/file")
            assert bool(shown["problem"]) == (mode == "ro")
            body = {"text": f"{shown['text']}# more\n", "version": shown["version"]}
            refused = await service.client.put("/api/configuration/file", json=body)
            assert refused.status_code == 422
            assert why in refused.json()["detail"]
            assert file.read_text() == TEXT
        finally:
            await anyio.run_process(["umount", str(file)])


async def test_only_administrators_see_it(tmp_path: Path) -> None:
    async with edited(tmp_path) as (service, _):
        for scope in ("read", "operator"):
            token = await service.services.tokens.create(scope, "operator")
            for method, path in (
                ("GET", ""),
                ("GET", "/file"),
                ("POST", "/check"),
                ("PUT", "/file"),
            ):
                response = await service.stranger.request(
                    method, f"/api/configuration{path}", headers={"X-Api-Key": token}
                )
                assert response.status_code == 403
        response = await service.stranger.get("/api/configuration")
        assert response.status_code == 401


async def test_without_a_file_there_is_nothing_to_edit(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        assert (await service.client.get("/api/configuration/file")).status_code == 503
