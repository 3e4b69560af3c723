"""Collects setup answers from prompts or environment variables and checks them. Writes nothing."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from bots.common.diagnosis import CheckResult, Severity
from gateway.checks.report import format_results
from gateway.command_errors import CommandFailed
from gateway.config_validation import closest_match
from gateway.setup.prompts import SetupPrompter
from gateway.setup.steps import MODELS, PLATFORMS, SPEECH, SetupField, SetupStep

NO_MODEL, VOICE = "none", "voice"
MODEL_KEY = "model"
MAX_MODELS = 15
"""Maximum number of models to choose from."""

_MODEL_NUMBERS = {str(number): name for number, name in enumerate(MODELS, 1)}


class CredentialCheck(Protocol):
    """Checks answers against the platform or provider."""

    def platform(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Check a platform with the values of its section."""
        ...

    def model(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Check a model with the values of its entry."""
        ...

    def speech(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Check a speech service with the values of its section."""
        ...

    def list_models(self, name: str, values: Mapping[str, str]) -> Sequence[str]:
        """Return the models that a provider offers, given its address and key. Empty = unknown."""
        ...


@dataclass(slots=True)
class SetupAnswers:
    """The platforms and the model to configure.

    Attributes:
        platforms: Name -> key -> value.
        model: A name of `MODELS`; None = leave `models` as it is.
        model_values: Key -> value of the model's entry.
        speech: Key -> value of the speech service; empty = leave `voice` as it is.
    """

    platforms: dict[str, dict[str, str]] = field(default_factory=dict)
    model: str | None = None
    model_values: dict[str, str] = field(default_factory=dict)
    speech: dict[str, str] = field(default_factory=dict)


KnownValue = Callable[[str, SetupField], str | None]
"""Returns the current value of a platform's or model provider's field; None = not set."""


def prompt_for_answers(
    person: SetupPrompter,
    trials: CredentialCheck,
    known: KnownValue,
    *,
    steps: Mapping[str, SetupStep] = PLATFORMS,
    has_models: bool,
) -> SetupAnswers:
    """Ask until each chosen platform and model passes its check, or the user keeps or skips it."""
    answers = SetupAnswers()
    for name, preset in _choose_platforms(person).items():
        step = _with_defaults(steps[name], preset)
        values = _prompt_until_valid(person, name, step, known, trials.platform)
        if values is not None:
            answers.platforms[name] = values
    chosen = _choose_model(person, has_models=has_models)
    if chosen is not None:
        values = _prompt_until_valid(
            person, chosen, MODELS[chosen], known, trials.model, trials.list_models
        )
        if values is not None:
            answers.model, answers.model_values = chosen, values
    # The demo model ignores what people say.
    is_useful = answers.platforms and (answers.model or has_models)
    if is_useful and person.confirm("\nTranscribe voice messages with a speech service?"):
        answers.speech = _prompt_until_valid(person, VOICE, SPEECH, known, trials.speech) or {}
    return answers


def read_answers_from_environment(
    trials: CredentialCheck,
    known: KnownValue,
    *,
    steps: Mapping[str, SetupStep],
    platforms: Sequence[str],
    model: str | None,
    has_models: bool,
) -> SetupAnswers:
    """Read answers from environment variables. Without names, use each platform whose variables are all set.

    Raises:
        CommandFailed: A variable is missing, or a value fails its check.
    """
    named = platforms or [
        name for name, step in steps.items() if not _missing_variables(name, step, known)
    ]
    answers = SetupAnswers()
    for name in named:
        values = _read_variables(name, steps[name], known)
        _require_valid(steps[name], trials.platform(name, values))
        answers.platforms[name] = values
    if model is None and not has_models:
        model = next(
            (n for n, step in MODELS.items() if not _missing_variables(n, step, known)), None
        )
    if model is not None and model != NO_MODEL:
        values = _read_variables(model, MODELS[model], known)
        _require_valid(MODELS[model], trials.model(model, values))
        answers.model, answers.model_values = model, values
    if known(VOICE, SPEECH.fields[0]) is not None:
        answers.speech = _read_variables(VOICE, SPEECH, known)
        _require_valid(SPEECH, trials.speech(VOICE, answers.speech))
    return answers


def _choose_platforms(person: SetupPrompter) -> dict[str, Mapping[str, str]]:
    """Return the chosen platforms, each with the answers that its name implies. Lark is Feishu at another address."""
    names = list(PLATFORMS)
    while True:
        said = person.ask(f"Which platforms? {', '.join(names)}; Enter = none", default="-")
        words = [word for word in said.lower().replace(",", " ").split() if word != "-"]
        implied = {"feishu": {"domain": "https://open.larksuite.com"}} if "lark" in words else {}
        words = ["feishu" if word == "lark" else word for word in words]
        unknown = [word for word in words if word not in names]
        if not unknown:
            return {name: implied.get(name, {}) for name in names if name in words}
        guess = closest_match(unknown[0], names)
        person.show(f"Unknown platform: {unknown[0]}{f'; did you mean {guess}?' if guess else '.'}")


def _with_defaults(step: SetupStep, defaults: Mapping[str, str]) -> SetupStep:
    fields = (
        replace(field, default=defaults.get(field.key, field.default)) for field in step.fields
    )
    return replace(step, fields=tuple(fields))


def _choose_model(person: SetupPrompter, *, has_models: bool) -> str | None:
    last = len(MODELS) + 1
    rest = "keep the configured models" if has_models else "none for now; use the built-in demo"
    person.show("\nWhich model do you want to use?")
    for number, name in _MODEL_NUMBERS.items():
        person.show(f"  {number}  {MODELS[name].title}")
    person.show(f"  {last}  {rest}")
    while True:
        said = person.ask(f"Model [{last}]", default=str(last)).lower()
        if said in {str(last), NO_MODEL}:
            return None
        if (name := _MODEL_NUMBERS.get(said, said)) in MODELS:
            return name
        person.show(f"Enter a number from 1 to {last}.")


def _prompt_until_valid(
    person: SetupPrompter,
    name: str,
    step: SetupStep,
    known: KnownValue,
    trial: Callable[[str, Mapping[str, str]], Sequence[CheckResult]],
    list_models: Callable[[str, Mapping[str, str]], Sequence[str]] | None = None,
) -> dict[str, str] | None:
    """Ask until the values pass the check or the user keeps them. None = the user skips the step.

    On a retry, the previous answers are the defaults.
    """
    person.show(f"\n{step.title}")
    if step.instructions:
        person.show(step.instructions)
    values: dict[str, str] = {}
    while True:
        before, values = values, {}
        for one in step.fields:
            asked = one
            if one.key == MODEL_KEY and list_models is not None:
                asked = _with_choices(person, one, list_models(name, values))
            values[one.key] = _prompt_value(person, asked, known(name, one), before.get(one.key))
        person.show("Checking...")
        with person.without_echo():
            findings = [*check_package(step), *trial(name, values)]
        person.show(format_results(_without_notes(findings)).rstrip("\n"))
        if all(finding.severity is not Severity.PROBLEM for finding in findings):
            return values
        said = person.ask("[a] try again, [k] keep it anyway, or [s] skip it", default="a").lower()
        if said.startswith("k"):
            return values
        if said.startswith(("s", "l")):
            return None


def _with_choices(person: SetupPrompter, field: SetupField, models: Sequence[str]) -> SetupField:
    """Show the models to choose from by number. A server's only model is the default."""
    if not models:
        return field
    for number, model in enumerate(models[:MAX_MODELS], 1):
        person.show(f"  {number}  {model}")
    if len(models) > MAX_MODELS:
        person.show(f"  … and {len(models) - MAX_MODELS} more; enter any name")
    default = field.default or (models[0] if len(models) == 1 else None)
    names = {model: model for model in models}
    numbers = {str(number): model for number, model in enumerate(models[:MAX_MODELS], 1)}
    return replace(
        field,
        prompt=f"{field.prompt} (number or name)",
        default=default,
        aliases={**names, **numbers},
    )


def _prompt_value(
    person: SetupPrompter, field: SetupField, known: str | None, before: str | None = None
) -> str:
    """Ask for a value. `known`: its current value; `before`: the answer on the previous try."""
    default = before or known or field.default
    hint = ""
    if before is not None and field.secret:
        hint = " [Enter = what you entered before]"
    elif known is not None and field.secret:
        hint = f" [Enter = use {field.variable}]"
    elif default and field.aliases is None:
        hint = f" [{default}]"
    elif default:
        shown = next(
            (word for word, value in (field.aliases or {}).items() if value == default), default
        )
        hint = f" [{shown}]"
    said = person.ask(f"{field.prompt}{hint}", default=default, hidden=field.secret)
    return (field.aliases or {}).get(said.lower(), said)


def _missing_variables(name: str, step: SetupStep, known: KnownValue) -> list[str]:
    """Return the unset variables that a step needs."""
    return [
        field.variable
        for field in step.fields
        if known(name, field) is None and field.default is None
    ]


def _read_variables(name: str, step: SetupStep, known: KnownValue) -> dict[str, str]:
    if lacking := _missing_variables(name, step, known):
        raise CommandFailed(f"{step.title}: set {' and '.join(lacking)}; nothing was written")
    values = {field.key: known(name, field) or field.default or "" for field in step.fields}
    words = {field.key: field.aliases or {} for field in step.fields}
    return {key: words[key].get(value.lower(), value) for key, value in values.items()}


def _require_valid(step: SetupStep, findings: Sequence[CheckResult]) -> None:
    for finding in (*check_package(step), *findings):
        if finding.severity is Severity.PROBLEM:
            told = f"{step.title}: {finding.subject}: {finding.text}: {finding.fix}"
            raise CommandFailed(f"{told}; nothing was written")


def check_package(step: SetupStep) -> list[CheckResult]:
    """Return a problem if the step's package is not installed."""
    if step.package is None or importlib.util.find_spec(step.package) is not None:
        return []
    name = step.package.replace("_", "-")
    text = f"the package {name} is not installed"
    fix = f".venv/bin/python -m pip install {name}"
    return [CheckResult(subject="package", text=text, severity=Severity.PROBLEM, fix=fix)]


def _without_notes(findings: Sequence[CheckResult]) -> list[CheckResult]:
    return [finding for finding in findings if finding.severity is not Severity.NOTE]
