"""Checks one instance for `parley doctor`. The platform's SDK is imported only when the check runs.

Each platform's `bots/<platform>/diagnosis.py` defines `diagnose(section, options)`.
"""

import importlib
from collections.abc import Sequence
from dataclasses import replace

import anyio

from bots.common.diagnosis import CheckResult, Diagnose, DiagnosisOptions, problem
from bots.config import PlatformConfig
from bots.registry import missing_keys


async def diagnose_channel(
    name: str, section: PlatformConfig, options: DiagnosisOptions
) -> Sequence[CheckResult]:
    """Check the bot of one section. Never raises."""
    if fault := missing_keys(name, section):
        return [
            problem(
                "settings", fault, f"set the missing keys, or set channels.{name}.enabled to false"
            )
        ]
    try:
        path = f"bots.{section.platform}.diagnosis"
        module = await anyio.to_thread.run_sync(importlib.import_module, path)
    except ImportError as error:
        return [
            problem("settings", f"its SDK is not installed ({error.name})", "run `make install`")
        ]
    diagnose: Diagnose = module.diagnose
    return await diagnose(section, replace(options, channel=name))
