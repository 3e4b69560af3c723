"""The wheel is complete: the program runs from it, without the rest of the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import anyio
import pytest

from tests.journeys.service import ROOT, Service
from tests.ports import free_port


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and unpack it like an installation."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("parley-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


async def test_the_service_runs_from_its_wheel_with_its_skills(
    tmp_path: Path, installed: Path
) -> None:
    where = [sys.executable, "-P", "-c", "import gateway; print(gateway.__file__)"]
    done = await anyio.run_process(where, env={"PYTHONPATH": str(installed)})
    assert done.stdout.decode().strip() == str(installed / "gateway" / "__init__.py")
    service = Service(tmp_path, {}, {"PYTHONPATH": str(installed)})
    await service.start()
    try:
        async with service.client() as client:
            skills = (await client.get("/api/skills")).json()["skills"]
            console = await client.get("/console/console.mjs")
    finally:
        await service.stop()
    public = [path.name async for path in anyio.Path(ROOT / "skills" / "public").iterdir()]
    assert sorted(skill["name"] for skill in skills) == sorted(public)
    assert console.status_code == 200


async def test_its_commands_run_from_its_wheel(tmp_path: Path, installed: Path) -> None:
    service = Service(tmp_path, {}, {"PYTHONPATH": str(installed)})
    port = free_port()  # Another service may use the default port.
    service.config.write_text(f"# ours\nlog_level: info\ngateway: {{port: {port}}}\n")
    code, out, error = await service.command("config", "upgrade")
    assert (code, "now has config_version" in out) == (0, True), error
    assert "# ours" in service.config.read_text()
    code, out, error = await service.command("check")
    assert code == 0, out + error
    code, out, error = await service.command("chat", stdin="hello\n")
    assert (code, "You said: hello" in out) == (0, True), error
