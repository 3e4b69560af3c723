"""`parley init`: asks what to set up, checks the answers, and writes config.yaml and `.env`."""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from pydantic import ValidationError

from agent.config import AgentConfig
from agent.config.models import ModelConfig
from bots.common.diagnosis import CheckResult, DiagnosisOptions, problem
from bots.config import BotsConfig
from bots.diagnosis import diagnose_channel
from bus.voice.config import VoiceConfig
from gateway import logs
from gateway.checks.models import check_model, list_models
from gateway.checks.voice import check_voice
from gateway.command_errors import CommandFailed
from gateway.config import environment_variables, load_config
from gateway.config_file import ConfigError, find_config
from gateway.config_upgrade import ConfigUpgradeError
from gateway.config_validation import format_validation_error, normalize
from gateway.config_variables import resolve_variables
from gateway.file_drafts import ENV_FILE, FileDraft, backup_draft, read_text, write_drafts
from gateway.setup.config_files import (
    config_draft,
    env_draft,
    parse_config,
    referenced_variable,
)
from gateway.setup.prompts import SetupPrompter
from gateway.setup.steps import MODELS, PLATFORMS, SPEECH, SetupField, SetupStep
from gateway.setup.wizard import (
    VOICE,
    SetupAnswers,
    prompt_for_answers,
    read_answers_from_environment,
)

NOTHING_CHOSEN = (
    "You chose nothing, so nothing was written. `make run` starts Parley with the built-in demo."
)
NOTHING_WRITTEN = "\nNothing was written.\n"


def run(arguments: argparse.Namespace) -> int:
    """Run the setup."""
    logs.configure_logging("error", "console", secrets=())
    try:
        run_setup(arguments, SetupPrompter())
    except ConfigUpgradeError as error:
        raise CommandFailed(f"{_find_target(arguments)}: {error}; nothing was written") from None
    except KeyboardInterrupt:
        sys.stdout.write(NOTHING_WRITTEN)
        raise
    return 0


def run_setup(
    arguments: argparse.Namespace, person: SetupPrompter, environ: Mapping[str, str] | None = None
) -> None:
    """Ask or read the answers, check them, and write the files.

    Args:
        arguments: Command-line arguments.
        person: Asks the questions.
        environ: Environment variables; None = the process's.

    Raises:
        CommandFailed: Nothing was written. The message says why.
    """
    place = SetupFolder(_find_target(arguments, environ), environ)
    if arguments.non_interactive:
        answers = read_answers_from_environment(
            place,
            place.known,
            steps=place.platforms,
            platforms=arguments.platform or (),
            model=arguments.model,
            has_models=place.has_models,
        )
    else:
        person.show(
            f"This sets up {place.config} and {place.env}."
            " Tokens are hidden while you type. Press Ctrl-C to quit without changes.\n"
        )
        answers = prompt_for_answers(
            person, place, place.known, steps=place.platforms, has_models=place.has_models
        )
    if not answers.platforms and answers.model is None and not answers.speech:
        person.show(NOTHING_CHOSEN)
        return
    secrets, drafts = place.drafts(answers)
    shadowed = place.check(drafts, secrets)
    replaced = [f"{name} in {draft.path.name}" for draft in drafts for name in draft.replaced_keys]
    if replaced and not arguments.force:
        _confirm_replacement(person, replaced, may_ask=not arguments.non_interactive)
    try:
        write_drafts(drafts)
    except OSError as error:
        raise CommandFailed(
            f"{place.config.parent}: cannot be written ({error.strerror})"
        ) from None
    person.show(_summary(drafts, answers, shadowed))


def _confirm_replacement(person: SetupPrompter, replaced: Sequence[str], *, may_ask: bool) -> None:
    """Ask before replacing values. Raises CommandFailed unless the user confirms."""
    what = ", ".join(replaced)
    if not may_ask:
        raise CommandFailed(f"this would replace {what}: use --force; nothing was written")
    if not person.confirm(f"\nThis replaces {what}. Continue?"):
        raise CommandFailed("nothing was written")


def _summary(drafts: Sequence[FileDraft], answers: SetupAnswers, shadowed: Sequence[str]) -> str:
    lines = [""]
    for draft in drafts:
        if draft.changed:
            who = " (readable by you only)" if draft.path.name == ENV_FILE else ""
            lines.append(f"Written: {draft.path}{who}")
    if not any(draft.changed for draft in drafts):
        lines.append("The files are already up to date.")
    lines += [
        f"Note: {name} is set in the environment to another value, which overrides .env. Unset it there."
        for name in shadowed
    ]
    lines.append(
        "Start Parley with `make run` (or `parley serve`). Run `parley doctor` to check it."
    )
    lines += [PLATFORMS[name].next_steps for name in answers.platforms]
    return "\n".join(lines)


def _find_target(arguments: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Path:
    """Return the file to write: the named file, which need not exist, else the file in use, else ./config.yaml.

    Raises:
        CommandFailed: Its folder does not exist or is not writable.
    """
    named = arguments.config or environment_variables(Path(), environ)[0].get("PARLEY_CONFIG")
    found = (
        Path(named).absolute() if named else find_config(None, {}) or Path("config.yaml").absolute()
    )
    if not os.access(found.parent, os.W_OK | os.X_OK):
        raise CommandFailed(f"{found.parent}: no such folder, or it is not writable")
    return found


class SetupFolder:
    """The folder of config.yaml and `.env`: reads their values and drafts their new contents."""

    def __init__(self, config: Path, environ: Mapping[str, str] | None) -> None:
        self.config = config
        self.env = config.with_name(ENV_FILE)
        self._tree: Mapping[str, Any] = parse_config(read_text(config))
        if not isinstance(self._tree.get("channels") or {}, dict):
            raise ConfigUpgradeError("channels is not a section of `key: value` lines")
        self._environ, self._dotenv = environment_variables(config.parent, environ)
        self._known = {**self._dotenv, **self._environ}
        self.platforms = {name: self._configured(name, step) for name, step in PLATFORMS.items()}

    @property
    def has_models(self) -> bool:
        """Whether `models` are configured."""
        return bool(self._tree.get("models"))

    def known(self, name: str, field: SetupField) -> str | None:
        """Return the current value of a platform's or provider's field."""
        if name == VOICE:
            voice = self._tree.get(VOICE)
            section: Mapping[str, Any] = voice if isinstance(voice, dict) else {}
        else:
            section = self._section(name) if name in PLATFORMS else self._model_entry(name)
        written = section.get(field.key)
        if not field.secret:
            return str(written) if written else self._known.get(field.variable) or None
        return self._known.get(field.variable) or None

    def platform(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Check a platform without disturbing another process that uses the bot."""
        tree = {"channels": {name: {**self._section(name), **values, "enabled": True}}}
        resolved = resolve_variables(tree, self._known).tree["channels"]
        try:
            section = getattr(BotsConfig.model_validate(normalize(BotsConfig, resolved)), name)
        except ValidationError as error:
            raise CommandFailed(
                f"{self.config}: {format_validation_error(error, 'channels')[0]}"
            ) from None
        return anyio.run(
            diagnose_channel, name, section, DiagnosisOptions(exclusive=False, setting_up=True)
        )

    def model(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Check a provider's model with a short request."""
        entry = ModelConfig.model_validate({**(MODELS[name].entry or {}), **values})
        return [anyio.run(check_model, AgentConfig(models=[entry]), entry)]

    def speech(self, name: str, values: Mapping[str, str]) -> Sequence[CheckResult]:
        """Check a speech service with a second of speech."""
        try:
            config = VoiceConfig.model_validate(values)
        except ValidationError as error:
            return [problem(name, line) for line in format_validation_error(error, name)]
        return anyio.run(check_voice, config)

    def list_models(self, name: str, values: Mapping[str, str]) -> Sequence[str]:
        """Return the models that a provider lists; empty if it does not."""
        step = MODELS[name]
        base_url = self._known.get(step.base_url_variable) or step.base_url or values["base_url"]
        key = values["api_key"]
        headers = {"Authorization": f"Bearer {key}"}
        if name == "anthropic":
            headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        return anyio.run(list_models, base_url, headers)

    def drafts(self, answers: SetupAnswers) -> tuple[Mapping[str, str], list[FileDraft]]:
        """Return the secrets by variable, and the drafts in the order of writing."""
        keys: dict[tuple[str, ...], Any] = {}
        secrets: dict[str, str] = {}
        for name, values in answers.platforms.items():
            keys["channels", name, "enabled"] = True
            for field in self.platforms[name].fields:
                keys["channels", name, field.key] = _put(field, values[field.key], secrets)
        if answers.speech:
            for field in SPEECH.fields:
                keys[VOICE, field.key] = _put(field, answers.speech[field.key], secrets)
        model: dict[str, Any] | None = None
        if answers.model is not None:
            step = MODELS[answers.model]
            values = {
                field.key: _put(field, answers.model_values[field.key], secrets)
                for field in step.fields
            }
            model = {**(step.entry or {}), **values}
        config = config_draft(self.config, keys, model)
        drafts = [env_draft(self.env, secrets), config]
        if config.current_text is not None and config.changed:
            drafts.insert(1, backup_draft(config))
        return secrets, drafts

    def check(self, drafts: Sequence[FileDraft], secrets: Mapping[str, str]) -> list[str]:
        """Load the drafts like the service. Return the variables that the environment overrides.

        Raises:
            CommandFailed: The drafts are not a valid configuration.
        """
        with tempfile.TemporaryDirectory() as folder:
            for draft in drafts:
                (Path(folder) / draft.path.name).write_text(draft.new_text, "utf-8")
            trial = Path(folder) / self.config.name
            try:
                load_config(str(trial), dict(self._environ))
            except ConfigError as error:
                first = error.problems[0].replace(str(trial), str(self.config))
                raise CommandFailed(f"{first}; nothing was written") from None
        return [n for n, value in secrets.items() if self._environ.get(n, value) != value]

    def _model_entry(self, name: str) -> Mapping[str, Any]:
        """Return the configured entry of a provider."""
        models, wanted = self._tree.get("models") or [], (MODELS[name].entry or {}).get("name")
        entries = (
            (one for one in models if isinstance(one, dict)) if isinstance(models, list) else ()
        )
        return next((one for one in entries if one.get("name") == wanted), {})

    def _section(self, name: str) -> Mapping[str, Any]:
        section = (self._tree.get("channels") or {}).get(name)
        return section if isinstance(section, dict) else {}

    def _configured(self, name: str, step: SetupStep) -> SetupStep:
        """Return a platform's step with the variables that its section refers to."""
        section = self._section(name)
        fields = (
            replace(field, variable=referenced_variable(section.get(field.key), field.variable))
            for field in step.fields
        )
        return replace(step, fields=tuple(fields))


def _put(field: SetupField, value: str, secrets: dict[str, str]) -> str:
    """Return the value to write to the configuration. For a secret, add it to `secrets` and return `$NAME`."""
    if not field.secret or value == field.default:
        return value
    secrets[field.variable] = value
    return f"${field.variable}"
