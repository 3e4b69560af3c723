"""The page on languages is correct: following it adds a third language to a copy of the code."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "languages.md"

ASKED = """
from agent.locales import messages_for as agent_messages
from bus.config import BusConfig
from bus.locales import messages_for, supported_language

names = [messages_for(tag).language for tag in ("de-AT", "fr")]
print(*names, supported_language("de"), BusConfig(language="de").language)
print(agent_messages("de").default_question)
"""


def test_a_third_language_is_added_as_the_page_says(tmp_path: Path) -> None:
    page = re.sub(r"^   ", "", PAGE.read_text("utf-8"), flags=re.M)
    for folder in ("bus", "agent/locales"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=leave)
    (tmp_path / "agent" / "__init__.py").touch()
    for source, copy in re.findall(r"^\$ cp (\S+) (\S+)$", page, re.M):
        translated = (tmp_path / source).read_text("utf-8")
        translated = re.sub("ENGLISH|CHINESE", "GERMAN", translated)
        translated = translated.replace('language="中文"', 'language="Deutsch"')
        (tmp_path / copy).write_text(
            translated.replace("How should I continue?", "Und nun?"), "utf-8"
        )
    for name, told in re.findall(r'^```python title="(\S+)"\n(.*?)^```', page, re.M | re.S):
        _add(tmp_path / name, told)
    command = [sys.executable, "-c", ASKED]
    environment = {"PYTHONPATH": str(tmp_path)}  # takes precedence over the code under test
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["Deutsch English de de", "Und nun?"], done.stderr


def _add(module: Path, told: str) -> None:
    """Add the import from the page after the other imports. Replace the line that begins like the page's line."""
    imported, _, languages = told.strip().partition("\n\n")
    text = module.read_text("utf-8")
    last = re.findall(r"^from .*$", text, re.M)[-1]
    text = text.replace(last, f"{last}\n{imported}")
    changed = re.sub(r"^LANGUAGES: .*$", languages, text, flags=re.M)
    assert changed != text
    module.write_text(changed, "utf-8")
