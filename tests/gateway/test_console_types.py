"""The modules of the console and of the playground's page: their types by JSDoc, and texts in each language."""

import json
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from gateway.routes.console import PAGE

JS = Path(__file__).parent / "js"
COMPILER = JS / "node_modules" / "typescript" / "bin" / "tsc"
NODE = shutil.which("node")
LIST_TEXTS = """
const [en, zh] = await Promise.all(["en", "zh"].map((code) => import(`${process.argv[1]}/texts/${code}.mjs`)));
const holes = (texts) => Object.entries(texts)
  .flatMap(([group, named]) => Object.entries(named).map(([name, text]) => [`${group}.${name}`, text]))
  .map(([key, text]) => [key, [...new Set(text.match(/\\{\\w+\\}/g) ?? [])].sort()]);
console.log(JSON.stringify([holes(en.texts), holes(zh.texts)]));
"""

needs_node = pytest.mark.skipif(
    NODE is None, reason="needs node (Debian, Ubuntu: apt-get install nodejs)"
)


@needs_node
@pytest.mark.skipif(
    not (JS / "node_modules" / ".ready").exists(), reason="needs `make peers-js` (npm)"
)
@pytest.mark.parametrize("page", ["console", "playground"])
async def test_the_modules_agree_with_their_types(page: str) -> None:
    assert NODE is not None
    with anyio.fail_after(300):
        done = await anyio.run_process(
            [NODE, str(COMPILER), "-p", str(JS / f"{page}.tsconfig.json")],
            check=False,
            stderr=subprocess.STDOUT,
        )
    assert done.returncode == 0, done.stdout.decode()[-6000:]


@needs_node
async def test_each_text_exists_in_both_languages() -> None:
    assert NODE is not None
    command = [NODE, "--input-type=module", "-e", LIST_TEXTS, str(PAGE)]
    done = await anyio.run_process(command)
    english, chinese = (dict(map(tuple, one)) for one in json.loads(done.stdout))
    assert english == chinese
