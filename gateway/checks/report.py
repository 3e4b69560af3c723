"""Report of `parley doctor`, as text and as JSON. Does no I/O."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bots.common.diagnosis import CheckResult, Severity

MACHINE, MODELS, VOICE, MCP = "this machine", "models", "voice", "MCP servers"
SCHEDULES = "schedules"
"""Areas of the report, in addition to the channels."""

_SEVERITY_WIDTH = max(len(severity.value) for severity in Severity)


@dataclass(slots=True)
class DoctorReport:
    """Check results by area, in display order."""

    areas: dict[str, list[CheckResult]] = field(default_factory=dict)

    def add(self, area: str, *results: CheckResult) -> None:
        """Add results to an area, which exists from its first result on."""
        if results:
            self.areas.setdefault(area, []).extend(results)

    @property
    def results(self) -> Sequence[CheckResult]:
        """The results of all areas."""
        return [result for area in self.areas.values() for result in area]

    @property
    def healthy(self) -> bool:
        """Whether there are no problems."""
        return all(result.severity is not Severity.PROBLEM for result in self.results)

    @property
    def rows(self) -> list[dict[str, str | None]]:
        """The results for programs."""
        return [
            {
                "area": area,
                "subject": result.subject,
                "severity": result.severity.value,
                "text": result.text,
                "fix": result.fix or None,
            }
            for area, found in self.areas.items()
            for result in found
        ]

    def text(self) -> str:
        """Return the report as text."""
        parts = [_format_area(name, found) for name, found in self.areas.items() if found]
        return "\n".join([*parts, self._summary()])

    def json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(
            {"healthy": self.healthy, "checks": self.rows}, indent=2, ensure_ascii=False
        )

    def _summary(self) -> str:
        counted = Counter(result.severity for result in self.results)
        counts = [
            f"{count} {severity.value}{'s' if count > 1 else ''}"
            for severity in (Severity.PROBLEM, Severity.WARNING)
            if (count := counted[severity])
        ]
        return f"{' and '.join(counts)}.\n" if counts else "No problems found.\n"


def redact_report(report: DoctorReport, clean: Callable[[str], str]) -> DoctorReport:
    """Return the report with all texts passed through `clean`, which redacts secrets."""
    return DoctorReport(
        {
            area: [
                CheckResult(
                    subject=f.subject, text=clean(f.text), severity=f.severity, fix=clean(f.fix)
                )
                for f in found
            ]
            for area, found in report.areas.items()
        }
    )


def format_results(results: Sequence[CheckResult]) -> str:
    """Return results as lines, each followed by its fix.

    >>> slow = CheckResult(subject="clock", text="is slow", severity=Severity.WARNING, fix="set it")
    >>> print(format_results([slow]), end="")
      warning  clock  is slow
                      -> set it
    """
    width = max((len(result.subject) for result in results), default=0)
    lines: list[str] = []
    for result in results:
        lines.append(
            f"  {result.severity:<{_SEVERITY_WIDTH}}  {result.subject:<{width}}  {result.text}"
        )
        if result.fix:
            lines.append(f"  {'':<{_SEVERITY_WIDTH}}  {'':<{width}}  -> {result.fix}")
    return "".join(f"{line}\n" for line in lines)


def _format_area(name: str, results: Sequence[CheckResult]) -> str:
    return f"{name}\n{format_results(results)}"
