"""`parley config upgrade`: a configuration file brought up to date."""

import stat
from pathlib import Path

import pytest
import yaml

from gateway.config import CONFIG_VERSION, load_config
from gateway.config_upgrade import ConfigUpgradeError, upgrade_config
from tests.gateway.test_cli import one_line, parley

ROOT = Path(__file__).parents[2]
OLD = """\
# Our bot, see the wiki.
log_level: debug   # while we look for the fault
models:
  - name: gpt      # the cheap one
    use: "langchain_openai:ChatOpenAI"
    model: gpt-5
    api_key: $OPENAI_API_KEY
title: {max_words: 4}
our_own: [1, 2]
"""


def test_an_upgrade_keeps_values_and_comments_and_adds_missing_keys(tmp_path: Path) -> None:
    example = (ROOT / "config.example.yaml").read_text()
    text = upgrade_config(OLD, example, version=CONFIG_VERSION)
    assert text is not None
    for line in ("# Our bot, see the wiki.", "# while we look for the fault", "# the cheap one"):
        assert line in text
    tree, before = yaml.safe_load(text), yaml.safe_load(OLD)
    assert tree["models"] == before["models"]
    assert (tree["log_level"], tree["our_own"]) == ("debug", [1, 2])
    assert tree["title"]["max_words"] == 4
    assert tree["title"]["max_chars"] == 60
    assert tree["config_version"] == CONFIG_VERSION
    missing = yaml.safe_load(example).keys() - tree.keys()
    assert not missing
    assert upgrade_config(text, example, version=CONFIG_VERSION) is None


def test_a_section_on_one_line_stays_on_one_line(tmp_path: Path) -> None:
    example = (ROOT / "config.example.yaml").read_text()
    text = upgrade_config("channels:\n  slack: {enabled: true}\n", example, version=CONFIG_VERSION)
    assert text is not None
    slack = next(line for line in text.splitlines() if line.startswith("  slack:"))
    assert yaml.safe_load(slack)["slack"] == yaml.safe_load(text)["channels"]["slack"]
    assert "#" not in slack


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "config_version: 99", "config_version: new"])
def test_files_that_are_not_a_configuration_are_refused(text: str) -> None:
    with pytest.raises(ConfigUpgradeError):
        upgrade_config(text, "config_version: 1", version=1)


def test_the_command_keeps_the_former_file_and_its_rights(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(OLD)
    file.chmod(0o600)
    code, out, err = parley(tmp_path, "config", "upgrade")
    assert (code, err) == (0, "")
    assert "the previous file is" in out
    assert (tmp_path / "config.yaml.bak").read_text() == OLD
    for path in (file, tmp_path / "config.yaml.bak"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_config(str(file), {"OPENAI_API_KEY": "k"}).agent.title.max_words == 4
    _, out, _ = parley(tmp_path, "config", "upgrade")
    assert "is up to date" in out
    assert sorted(path.name for path in tmp_path.glob("*config*")) == [
        "config.yaml",
        "config.yaml.bak",
    ]


def test_without_a_file_it_says_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    code, _, err = parley(folder, "config", "upgrade")
    assert code == 1
    assert "there is no configuration file to upgrade" in one_line(err)
