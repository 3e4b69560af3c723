"""/api/skills: list, enable, disable, install and edit skills."""

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
from gateway.dependencies import AgentServicesDep
from gateway.openapi import error_responses
from gateway.shared_files import SharedFilesRoute
from store.files.mirror import thread_area

router = APIRouter(route_class=SharedFilesRoute, responses=error_responses(400, 403, 404, 409, 500))


class SkillView(BaseModel):
    """A skill. `error` says why it cannot be used."""

    name: str
    description: str
    license: str | None
    compatibility: str | None
    metadata: dict[str, str]
    category: Literal["public", "custom"]
    enabled: bool
    error: str | None


class SkillList(BaseModel):
    """Skills, sorted by name."""

    skills: list[SkillView]


class SkillDetail(SkillView):
    """A skill with the text of its SKILL.md."""

    content: str


class SkillToggle(BaseModel):
    """Whether to enable the skill."""

    enabled: bool


class SkillContent(BaseModel):
    """The new text of SKILL.md."""

    content: str


class SkillInstallRequest(BaseModel):
    """The `.skill` file to install: a thread, and the file's path as the agent sees it."""

    thread_id: str
    path: str


class SkillInstallResponse(BaseModel):
    """The installed skill."""

    success: bool
    skill_name: str
    message: str


class SkillChangeView(BaseModel):
    """A change of a custom skill. `decision` is the result of the scan."""

    ts: str
    action: str
    prev_content: str | None
    new_content: str | None
    decision: str | None
    reason: str


class SkillHistoryView(BaseModel):
    """The changes of a custom skill, oldest first."""

    history: list[SkillChangeView]


class SkillRollbackRequest(BaseModel):
    """The index of the change to revert; -1 is the newest."""

    history_index: int


class SkillDeleteResponse(BaseModel):
    """The skill was deleted."""

    success: bool


@router.get("/skills")
async def list_skills(agent_services: AgentServicesDep) -> SkillList:
    """List all skills, including disabled and invalid ones."""
    return _skill_list((await agent_services.skills.load()).skills)


@router.post("/skills/install")
async def install_skill(
    body: SkillInstallRequest, agent_services: AgentServicesDep
) -> SkillInstallResponse:
    """Install a `.skill` file of a thread."""
    with closing(await _open_archive(agent_services, body)) as file:
        installed = await agent_services.skill_installer.install(file.raw, file.name)
    name = installed.skill.name
    message = ". ".join((f"The skill {name} is installed", *installed.notes))
    return SkillInstallResponse(success=True, skill_name=name, message=f"{message}.")


@router.get("/skills/custom")
async def list_custom_skills(agent_services: AgentServicesDep) -> SkillList:
    """List the custom skills."""
    shelf = await agent_services.skills.load()
    return _skill_list(tuple(skill for skill in shelf.skills if skill.category == "custom"))


@router.get("/skills/custom/{name}")
async def get_custom_skill(name: str, agent_services: AgentServicesDep) -> SkillDetail:
    """Return a custom skill with its text."""
    skill, content = await agent_services.skill_installer.content(name)
    return SkillDetail(**_skill_view(skill).model_dump(), content=content)


@router.put("/skills/custom/{name}")
async def update_custom_skill(
    name: str, body: SkillContent, agent_services: AgentServicesDep
) -> SkillDetail:
    """Replace the text of a custom skill."""
    skill = await agent_services.skill_installer.edit(name, body.content)
    return SkillDetail(**_skill_view(skill).model_dump(), content=body.content)


@router.delete("/skills/custom/{name}")
async def delete_custom_skill(name: str, agent_services: AgentServicesDep) -> SkillDeleteResponse:
    """Delete a custom skill and its files. Its history is kept."""
    await agent_services.skill_installer.delete(name)
    return SkillDeleteResponse(success=True)


@router.get("/skills/custom/{name}/history")
async def get_history(name: str, agent_services: AgentServicesDep) -> SkillHistoryView:
    """Return the changes of a custom skill."""
    changes = await agent_services.skill_installer.history(name)
    return SkillHistoryView(
        history=[SkillChangeView.model_validate(asdict(change)) for change in changes]
    )


@router.post("/skills/custom/{name}/rollback")
async def rollback_custom_skill(
    name: str, body: SkillRollbackRequest, agent_services: AgentServicesDep
) -> SkillDetail:
    """Revert a change of a custom skill."""
    await agent_services.skill_installer.rollback(name, body.history_index)
    return await get_custom_skill(name, agent_services)


@router.get("/skills/{name}")
async def get_skill(name: str, agent_services: AgentServicesDep) -> SkillDetail:
    """Return a skill with its text, which is empty if it cannot be read."""
    skill, content = await agent_services.skills.content(name)
    return SkillDetail(**_skill_view(skill).model_dump(), content=content)


@router.put("/skills/{name}")
async def toggle_skill(name: str, body: SkillToggle, agent_services: AgentServicesDep) -> SkillView:
    """Enable or disable a skill for runs that start from now on."""
    return _skill_view(await agent_services.skills.set_enabled(name, on=body.enabled))


def _skill_view(skill: Skill) -> SkillView:
    return SkillView(
        name=skill.name,
        description=skill.description,
        license=skill.license,
        compatibility=skill.compatibility,
        metadata=dict(skill.metadata),
        category=skill.category,
        enabled=skill.enabled,
        error=skill.error,
    )


def _skill_list(skills: tuple[Skill, ...]) -> SkillList:
    return SkillList(skills=[_skill_view(skill) for skill in skills])


async def _open_archive(
    agent_services: AgentServicesDep, body: SkillInstallRequest
) -> ArtifactFile:
    opening = _archive_opener(agent_services, body)
    await agent_services.mirror.fetch(thread_area(body.thread_id))
    try:
        return await to_thread.run_sync(opening)
    except FileNotFoundError:
        raise HTTPException(404, "The file does not exist.") from None
    except IsADirectoryError:
        raise HTTPException(400, "The path is not a file.") from None


def _archive_opener(
    agent_services: AgentServicesDep, body: SkillInstallRequest
) -> Callable[[], ArtifactFile]:
    try:
        way = relative_parts(normalize_path(body.path), USER_DATA)
        folder = agent_services.folders.folders(body.thread_id).user_data
    except PathNotAllowed:
        raise HTTPException(403, "The path is not allowed.") from None
    except ThreadIdInvalid:
        raise HTTPException(422, "Invalid thread ID.") from None
    if way is None:
        raise HTTPException(403, f"Only files below {USER_DATA} can be installed.")
    return partial(open_beneath, folder, way)
