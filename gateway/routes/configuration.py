"""/api/configuration: the configuration in force with its sources, and the editor of its file."""

from collections.abc import Mapping
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import HTTPConnection, Request

from bots.config import PlatformConfig
from gateway.config_documentation import document_key
from gateway.config_editor import ConfigChangedMeanwhile, ConfigEditor, ConfigNotSaved, SavedText
from gateway.config_file import ConfigError
from gateway.config_messages import translate, translate_all
from gateway.config_sources import Origin
from gateway.config_text import KeyNotSettable
from gateway.dependencies import LanguageDep, ServicesDep
from gateway.errors import ServiceNotRunning
from gateway.middleware import AUDIT_DETAIL
from gateway.openapi import error_responses

router = APIRouter(prefix="/configuration", responses=error_responses(409, 422))

MAX_TEXT_CHARS = 500_000
MAX_AUDITED_KEYS = 20


async def get_editor(connection: HTTPConnection) -> ConfigEditor:
    """Return the editor. Raises ServiceNotRunning (503) outside `parley serve`."""
    editor: ConfigEditor | None = getattr(connection.app.state, "config_editor", None)
    if editor is None:
        raise ServiceNotRunning
    return editor


EditorDep = Annotated[ConfigEditor, Depends(get_editor)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class KeyView(BaseModel):
    """A key in force.

    Attributes:
        value: JSON; secrets are `***`, and values of variables are `$NAME`.
        source: Where the value comes from, in a few words, such as `config.yaml:12 ($NAME)`.
        origin: The kind of the source, in one word.
        file: The configuration file; "" = the key is not in it.
        line: Its line there; 0 = it is not in the file.
        variable: The environment variable that has the value; "" = none.
        needs_restart: Whether a change takes effect only after a restart.
        waits_for_restart: Whether the file has a newer value, which takes effect after a restart.
        default: Its default, as documented.
        description: The meaning of the key, as documented.
    """

    key: str
    value: object
    source: str
    origin: Origin
    file: str
    line: int
    variable: str
    needs_restart: bool
    waits_for_restart: bool
    default: str
    description: str


class KeyList(BaseModel):
    """The configuration in force."""

    rows: list[KeyView]


class ConfigFileView(BaseModel):
    """The configuration file.

    Attributes:
        text: Its text. `<hidden-1>` and so on stand for secrets; send them back as they are.
        version: The version of the text, to send with a change.
        problem: Why it cannot be saved; "" = it can.
        has_previous: Whether a change can be undone.
    """

    model_config = ConfigDict(from_attributes=True)

    path: str
    text: str
    version: str
    problem: str
    has_previous: bool


class EditedText(BaseModel):
    """An edited text."""

    text: Text


class EditedKey(EditedText):
    """A key to set in an edited text; `value` is YAML in one line."""

    key: Annotated[str, Field(min_length=1, max_length=200)]
    value: Annotated[str, Field(max_length=2000)]


class VersionedText(EditedText):
    """A text to save; `version` is the version of the text that was edited."""

    version: str


class FileVersion(BaseModel):
    """The version that is shown."""

    version: str


class FindingView(BaseModel):
    """A finding; `line` is 0 if it belongs to no line of the file."""

    line: int
    message: str
    prevents_saving: bool


class CheckResponse(BaseModel):
    """The effects that saving would have.

    Attributes:
        difference: Lines of a unified diff; empty = nothing changed.
        restart: Sections that would take effect after a restart.
    """

    findings: list[FindingView]
    difference: list[str]
    restart: list[str]


class SaveResponse(BaseModel):
    """The result of saving the file.

    Attributes:
        message: What the service did with the file.
        version: The new version.
        changed: Keys whose values changed.
        problems: Why the running service ignores the file; empty = it applies the file.
        restart: Sections that take effect after a restart.
    """

    message: str
    version: str
    changed: list[str]
    problems: list[str]
    restart: list[str]


@router.get("")
async def list_configuration(
    editor: EditorDep,
    services: ServicesDep,
    key: Annotated[str, Query(max_length=200, description="Text that the key contains")] = "",
) -> KeyList:
    """Return the configuration in force: each key with its value, its source and its documentation."""
    return await to_thread.run_sync(_list, editor, services.config.bots.sections, key.lower())


def _list(editor: ConfigEditor, sections: Mapping[str, PlatformConfig], wanted: str) -> KeyList:
    rows = []
    for row in editor.list_keys():
        if wanted not in row.path.lower():
            continue
        name = row.path.split(".")[1] if row.path.startswith("channels.") else ""
        platform = sections[name].platform if name in sections else ""
        text = document_key(row.path, platform=platform)
        rows.append(
            KeyView(
                key=row.path,
                value=row.value,
                source=row.source.text,
                origin=row.source.origin,
                file=row.source.file,
                line=row.source.line,
                variable=row.source.variable,
                needs_restart=row.source.needs_restart,
                waits_for_restart=row.waits_for_restart,
                default=text.default if text else "",
                description=text.description if text else "",
            )
        )
    return KeyList(rows=rows)


@router.get("/file")
async def read_file(editor: EditorDep, language: LanguageDep) -> ConfigFileView:
    """Return the text of the configuration file, without its secrets."""
    try:
        found = ConfigFileView.model_validate(await editor.read())
    except (ConfigNotSaved, ConfigError) as error:
        raise _refusal(error, 404, language) from None
    return found.model_copy(update={"problem": translate(found.problem, language)})


@router.post("/check")
async def check_text(edited: EditedText, editor: EditorDep, language: LanguageDep) -> CheckResponse:
    """Check an edited text as `parley check` does, without starting anything. Graphs are not loaded."""
    try:
        found = await editor.check(edited.text)
    except (ConfigNotSaved, ConfigError) as error:
        raise _refusal(error, 404, language) from None
    return CheckResponse(
        findings=[
            FindingView(
                line=one.line,
                message=translate(one.message, language),
                prevents_saving=one.prevents_saving,
            )
            for one in found.findings
        ],
        difference=list(found.difference),
        restart=list(found.waiting),
    )


@router.post("/check/key")
async def set_text_key(edited: EditedKey, editor: EditorDep, language: LanguageDep) -> EditedText:
    """Return an edited text with one key set. Nothing else changes, comments included. Saves nothing."""
    try:
        return EditedText(text=await editor.set_key(edited.text, edited.key, edited.value))
    except KeyNotSettable as error:
        raise HTTPException(422, translate(str(error), language)) from None


@router.put("/file")
async def save_file(
    edited: VersionedText, editor: EditorDep, language: LanguageDep, request: Request
) -> SaveResponse:
    """Save the configuration file and apply it. The previous version is kept beside it, as `.bak`.

    Returns 409 if the file changed meanwhile, and 422 if the service would not use it.
    """
    try:
        saved = await editor.save(edited.text, edited.version)
    except ConfigNotSaved as error:
        raise _refusal(error, 422, language) from None
    return _saved(request, "The file is saved.", saved, language)


@router.post("/undo")
async def undo_change(
    shown: FileVersion, editor: EditorDep, language: LanguageDep, request: Request
) -> SaveResponse:
    """Swap the configuration file with its previous version, and apply it."""
    try:
        saved = await editor.undo(shown.version)
    except ConfigNotSaved as error:
        raise _refusal(error, 422, language) from None
    return _saved(request, "The previous version is back.", saved, language)


def _refusal(error: ConfigNotSaved | ConfigError, status: int, language: str) -> HTTPException:
    if isinstance(error, ConfigChangedMeanwhile):
        status = 409
    return HTTPException(status, "; ".join(translate_all(error.problems, language)))


def _saved(request: Request, done: str, saved: SavedText, language: str) -> SaveResponse:
    problems = translate_all(saved.outcome.problems, language)
    outcome = "It is in force."
    if saved.outcome.waiting:
        outcome = f"Restart the service for: {', '.join(saved.outcome.waiting)}."
    if saved.outcome.problems:
        outcome = f"The service ignores it: {'; '.join(problems)}"
    names = [*saved.changed[:MAX_AUDITED_KEYS], "..."][: len(saved.changed)]
    request.scope[AUDIT_DETAIL] = f"changed: {', '.join(names) or 'nothing'}"
    return SaveResponse(
        message=" ".join(translate_all((done, outcome), language)),
        version=saved.version,
        changed=list(saved.changed),
        problems=problems,
        restart=list(saved.outcome.waiting),
    )
