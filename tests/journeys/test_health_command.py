"""`parley health`, the health check of containers."""

from pathlib import Path
from typing import Any

from tests.journeys.service import serving
from tests.ports import free_port


async def test_the_health_command_finds_the_service_at_its_port(tmp_path: Path) -> None:
    config: dict[str, Any] = {"channels": {"slack": {"enabled": False}}}
    async with serving(tmp_path, config) as service:
        code, output, errors = await service.command("health")
        assert (code, errors) == (0, "")
        assert '"healthy"' in output
        # The command uses the port on which the service listens, even if the configuration has changed.
        written = service.config.read_text()
        service.config.write_text(written.replace(str(service.port), str(free_port())))
        assert (await service.command("health", "--ready"))[0] == 0
        service.config.write_text(written)
        assert await service.stop() == 0
        code, output, errors = await service.command("health")
        assert (code, output) == (1, "")
        assert f"127.0.0.1:{service.port} does not respond" in errors
