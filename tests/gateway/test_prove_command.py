"""Without a checkout, `parley prove` says what it needs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_install_without_the_tests_says_that_a_checkout_is_needed(tmp_path: Path) -> None:
    for name in ("agent", "bots", "bus", "gateway", "store", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "prove"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("parley: parley prove needs a checkout")
