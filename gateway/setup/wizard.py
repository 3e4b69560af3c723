"""What is to be set up: asked of a person, or read from the environment; tried before it counts. Writes nothing."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bots.common.diagnosis import CheckResult, Severity
from gateway.command_errors import CommandFailed
from gateway.config_validation import closest_match
from gateway.setup.doctor_report import format_results
from gateway.setup.prompts import SetupPrompter
from gateway.setup.steps import MODELS, PLATFORMS, SetupField, SetupStep

NO_MODEL = "none"
_MODEL_NUMBERS = {str(number): name for number, name in enumerate(MODELS, 1)}


class CredentialCheck(Protocol):
    """Finds out whether answers are good."""

    def platform(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Try a platform with the values of its section."""
        ...

    def model(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Try a provider's model with the values of its entry."""
        ...


@dataclass(slots=True)
class SetupAnswers:
    """What was chosen and found good.

    Attributes:
        platforms: Name -> key -> value.
        model: A name of `MODELS`; None = leave `models` as it is.
        model_values: Key -> value of its entry.
    """

    platforms: dict[str, dict[str, str]] = field(default_factory=dict)
    model: str | None = None
    model_values: dict[str, str] = field(default_factory=dict)


KnownValue = Callable[[str, SetupField], str | None]
"""The value that a key has already: of `slack`, `telegram`, ... or of a provider of models; None = none."""


def prompt_for_answers(
    person: SetupPrompter, trials: CredentialCheck, known: KnownValue, *, has_models: bool
) -> SetupAnswers:
    """Ask until everything that was chosen is good, or given up."""
    answers = SetupAnswers()
    for name in _choose_platforms(person):
        values = _prompt_until_valid(person, name, PLATFORMS[name], known, trials.platform)
        if values is not None:
            answers.platforms[name] = values
    chosen = _choose_model(person, has_models=has_models)
    if chosen is not None:
        values = _prompt_until_valid(person, chosen, MODELS[chosen], known, trials.model)
        if values is not None:
            answers.model, answers.model_values = chosen, values
    return answers


def read_answers_from_environment(
    trials: CredentialCheck,
    known: KnownValue,
    *,
    platforms: Sequence[str],
    model: str | None,
    has_models: bool,
) -> SetupAnswers:
    """Take everything from variables; what was not named is taken where its variables are all set.

    Raises:
        CommandFailed: A variable is missing, or what it says is not good.
    """
    named = platforms or [
        name for name, offer in PLATFORMS.items() if not _missing_variables(name, offer, known)
    ]
    answers = SetupAnswers()
    for name in named:
        values = _read_variables(name, PLATFORMS[name], known)
        _require_valid(PLATFORMS[name], trials.platform(name, values))
        answers.platforms[name] = values
    if model is None and not has_models:
        model = next(
            (n for n, offer in MODELS.items() if not _missing_variables(n, offer, known)), None
        )
    if model is not None and model != NO_MODEL:
        values = _read_variables(model, MODELS[model], known)
        _require_valid(MODELS[model], trials.model(model, values))
        answers.model, answers.model_values = model, values
    return answers


def _choose_platforms(person: SetupPrompter) -> list[str]:
    names = list(PLATFORMS)
    while True:
        said = person.ask(f"Which platforms? {', '.join(names)}; Enter = none", default="-")
        words = [word for word in said.lower().replace(",", " ").split() if word != "-"]
        words = ["feishu" if word == "lark" else word for word in words]
        unknown = [word for word in words if word not in names]
        if not unknown:
            return [name for name in names if name in words]
        guess = closest_match(unknown[0], names)
        person.tell(f"There is no {unknown[0]}{f'; did you mean {guess}?' if guess else '.'}")


def _choose_model(person: SetupPrompter, *, has_models: bool) -> str | None:
    last = len(MODELS) + 1
    rest = "what is configured stays" if has_models else "none yet: the built-in demo answers"
    person.tell("\nWhich model shall answer?")
    for number, name in _MODEL_NUMBERS.items():
        person.tell(f"  {number}  {MODELS[name].title}")
    person.tell(f"  {last}  {rest}")
    while True:
        said = person.ask(f"Model [{last}]", default=str(last)).lower()
        if said in {str(last), NO_MODEL}:
            return None
        if (name := _MODEL_NUMBERS.get(said, said)) in MODELS:
            return name
        person.tell(f"Say a number from 1 to {last}.")


def _prompt_until_valid(
    person: SetupPrompter,
    name: str,
    offer: SetupStep,
    known: KnownValue,
    trial: Callable[[str, Mapping[str, str]], Sequence[CheckResult]],
) -> dict[str, str] | None:
    """Ask and try; None when the person gives it up."""
    person.tell(f"\n{offer.title}")
    if offer.how:
        person.tell(offer.how)
    while True:
        values = {ask.key: _prompt_value(person, ask, known(name, ask)) for ask in offer.asks}
        person.tell("Trying ...")
        findings = [*check_package(offer), *trial(name, values)]
        person.tell(format_results(_without_notes(findings)).rstrip("\n"))
        if all(finding.severity is not Severity.PROBLEM for finding in findings):
            return values
        said = person.ask("[a]gain, [k]eep it nevertheless, or [l]eave it out", default="a").lower()
        if said.startswith("k"):
            return values
        if said.startswith("l"):
            return None


def _prompt_value(person: SetupPrompter, ask: SetupField, known: str | None) -> str:
    default = known or ask.default
    hint = ""
    if known is not None and ask.secret:
        hint = f" [Enter = the one in {ask.variable}]"
    elif default and ask.words is None:
        hint = f" [{default}]"
    elif default:
        shown = next(
            (word for word, value in (ask.words or {}).items() if value == default), default
        )
        hint = f" [{shown}]"
    said = person.ask(f"{ask.text}{hint}", default=default, hidden=ask.secret)
    return (ask.words or {}).get(said.lower(), said)


def _missing_variables(name: str, offer: SetupStep, known: KnownValue) -> list[str]:
    """Return the variables that would have to be set for an offer."""
    return [a.variable for a in offer.asks if known(name, a) is None and a.default is None]


def _read_variables(name: str, offer: SetupStep, known: KnownValue) -> dict[str, str]:
    if lacking := _missing_variables(name, offer, known):
        raise CommandFailed(f"{offer.title}: set {' and '.join(lacking)}; nothing was written")
    values = {ask.key: known(name, ask) or ask.default or "" for ask in offer.asks}
    words = {ask.key: ask.words or {} for ask in offer.asks}
    return {key: words[key].get(value.lower(), value) for key, value in values.items()}


def _require_valid(offer: SetupStep, findings: Sequence[CheckResult]) -> None:
    for finding in (*check_package(offer), *findings):
        if finding.severity is Severity.PROBLEM:
            told = f"{offer.title}: {finding.subject}: {finding.text}: {finding.fix}"
            raise CommandFailed(f"{told}; nothing was written")


def check_package(offer: SetupStep) -> list[CheckResult]:
    """Return that a package has to be installed first, or nothing."""
    if offer.package is None or importlib.util.find_spec(offer.package) is not None:
        return []
    name = offer.package.replace("_", "-")
    text = f"the package {name} is not installed"
    fix = f".venv/bin/python -m pip install {name}"
    return [CheckResult(subject="package", text=text, severity=Severity.PROBLEM, fix=fix)]


def _without_notes(findings: Sequence[CheckResult]) -> list[CheckResult]:
    return [finding for finding in findings if finding.severity is not Severity.NOTE]
