"""/api/skills: which there are, switching them, installing and editing this installation's own."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Literal

from anyio import to_thread
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from agent.artifacts import ArtifactFile, open_beneath
from agent.errors import PathNotAllowed, ThreadIdInvalid
from agent.paths import USER_DATA, normalize_path, relative_parts
from agent.skills.loader import Skill
from gateway.deps import Parts
from gateway.description import problems

router = APIRouter(responses=problems(400, 403, 404, 409, 500))


class SkillView(BaseModel):
    """A skill. `error` says what is wrong with one that cannot be used."""

    name: str
    description: str
    license: str | None
    category: Literal["public", "custom"]
    enabled: bool
    error: str | None


class SkillList(BaseModel):
    """Skills, sorted by name."""

    skills: list[SkillView]


class SkillText(SkillView):
    """A skill with the text of its SKILL.md."""

    content: str


class Switch(BaseModel):
    """Whether a skill shall be enabled."""

    enabled: bool


class NewText(BaseModel):
    """Another SKILL.md."""

    content: str


class InstallRequest(BaseModel):
    """Which `.skill` file to install: a thread, and the path that its agent sees."""

    thread_id: str
    path: str


class InstallAnswer(BaseModel):
    """What was installed."""

    success: bool
    skill_name: str
    message: str


class ChangeView(BaseModel):
    """A change of a custom skill; `decision` is what the scan said."""

    ts: str
    action: str
    prev_content: str | None
    new_content: str | None
    decision: str | None
    reason: str


class ChangeList(BaseModel):
    """The changes of a custom skill, oldest first."""

    history: list[ChangeView]


class RollbackRequest(BaseModel):
    """Which change to take back: its place in the history; -1 is the newest."""

    history_index: int


class Done(BaseModel):
    """It is done."""

    success: bool


@router.get("/skills")
async def skills(parts: Parts) -> SkillList:
    """List the skills, switched-off and broken ones among them."""
    return _list((await parts.systems.skills.load()).skills)


@router.post("/skills/install")
async def install(body: InstallRequest, parts: Parts) -> InstallAnswer:
    """Install a `.skill` file of a thread."""
    with closing(await _opened(parts, body)) as file:
        installed = await parts.systems.skill_installer.install(file.raw, file.name)
    name = installed.skill.name
    message = ". ".join((f"The skill {name} is installed", *installed.notes))
    return InstallAnswer(success=True, skill_name=name, message=f"{message}.")


@router.get("/skills/custom")
async def custom(parts: Parts) -> SkillList:
    """List this installation's own."""
    shelf = await parts.systems.skills.load()
    return _list(tuple(skill for skill in shelf.skills if skill.category == "custom"))


@router.get("/skills/custom/{name}")
async def text(name: str, parts: Parts) -> SkillText:
    """Return one of these with its text."""
    skill, content = await parts.systems.skill_installer.content(name)
    return SkillText(**_view(skill).model_dump(), content=content)


@router.put("/skills/custom/{name}")
async def edit(name: str, body: NewText, parts: Parts) -> SkillText:
    """Replace its text."""
    skill = await parts.systems.skill_installer.edit(name, body.content)
    return SkillText(**_view(skill).model_dump(), content=body.content)


@router.delete("/skills/custom/{name}")
async def delete(name: str, parts: Parts) -> Done:
    """Remove it with its files; the history stays."""
    await parts.systems.skill_installer.delete(name)
    return Done(success=True)


@router.get("/skills/custom/{name}/history")
async def history(name: str, parts: Parts) -> ChangeList:
    """Return what was done to it."""
    changes = await parts.systems.skill_installer.history(name)
    return ChangeList(history=[ChangeView.model_validate(asdict(change)) for change in changes])


@router.post("/skills/custom/{name}/rollback")
async def rollback(name: str, body: RollbackRequest, parts: Parts) -> SkillText:
    """Take a change back."""
    await parts.systems.skill_installer.rollback(name, body.history_index)
    return await text(name, parts)


@router.get("/skills/{name}")
async def skill(name: str, parts: Parts) -> SkillView:
    """Return one skill."""
    return _view(await parts.systems.skills.get(name))


@router.put("/skills/{name}")
async def switch(name: str, body: Switch, parts: Parts) -> SkillView:
    """Enable or disable a skill; runs that start from now on see it."""
    return _view(await parts.systems.skills.set_enabled(name, on=body.enabled))


def _view(skill: Skill) -> SkillView:
    return SkillView(
        name=skill.name,
        description=skill.description,
        license=skill.license,
        category=skill.category,
        enabled=skill.enabled,
        error=skill.error,
    )


def _list(skills: tuple[Skill, ...]) -> SkillList:
    return SkillList(skills=[_view(skill) for skill in skills])


async def _opened(parts: Parts, body: InstallRequest) -> ArtifactFile:
    opening = _opening(parts, body)
    try:
        return await to_thread.run_sync(opening)
    except FileNotFoundError:
        raise HTTPException(404, "There is no such file.") from None
    except IsADirectoryError:
        raise HTTPException(400, "This is not a file.") from None


def _opening(parts: Parts, body: InstallRequest) -> Callable[[], ArtifactFile]:
    try:
        way = relative_parts(normalize_path(body.path), USER_DATA)
        folder = parts.folders.folders(body.thread_id).user_data
    except PathNotAllowed:
        raise HTTPException(403, "This path may not be read.") from None
    except ThreadIdInvalid:
        raise HTTPException(422, "This is not a thread's id.") from None
    if way is None:
        raise HTTPException(403, f"Only files below {USER_DATA} can be installed.")
    return partial(open_beneath, folder, way)
