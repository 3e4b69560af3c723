"""Diagnosis of one instance for `parley doctor`; its SDK is imported only then."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio

from bots.common.diagnosis import CheckResult, Diagnose, DiagnosisOptions, problem
from bots.config import platform_of
from bots.registry import missing_keys
from bus.config import ChannelPolicy

PLATFORMS: Mapping[str, str] = {
    "slack": "bots.slack.diagnosis",
    "telegram": "bots.telegram.diagnosis",
    "feishu": "bots.feishu.diagnosis",
}
"""Platform -> module with `diagnose(section, look)`."""


async def diagnose_channel(
    name: str, section: ChannelPolicy, look: DiagnosisOptions
) -> Sequence[CheckResult]:
    """Check the bot of one section. Never raises."""
    if fault := missing_keys(name, section):
        return [
            problem("settings", fault, f"set what is missing, or channels.{name}.enabled to false")
        ]
    try:
        module = await anyio.to_thread.run_sync(
            importlib.import_module, PLATFORMS[platform_of(section)]
        )
    except ImportError as error:
        return [
            problem("settings", f"its SDK is not installed ({error.name})", "run `make install`")
        ]
    diagnose: Diagnose = module.diagnose
    return await diagnose(section, replace(look, channel=name))
