"""Skills over REST."""

import json
from pathlib import Path
from typing import Any

from tests.agent.test_skill_installer import MD, packed, version
from tests.agent.test_skills import put
from tests.gateway.composed import ComposedService, composed

NO_SCAN = "skills: {scan: none}"
CUSTOM = "/api/skills/custom"


async def sent(service: ComposedService, name: str = "a.skill", text: str = MD) -> dict[str, str]:
    """Put an archive into a thread's uploads. Return the request that installs it."""
    folders = service.services.agent_services.folders.folders("t1")
    folders.create()
    (folders.uploads / name).write_bytes(packed(("poems/SKILL.md", text)).getvalue())
    return {"thread_id": "t1", "path": f"/mnt/user-data/uploads/{name}"}


async def listed(
    service: ComposedService, address: str = "/api/skills"
) -> dict[str, dict[str, Any]]:
    answer = await service.client.get(address)
    assert answer.status_code == 200
    return {skill["name"]: skill for skill in answer.json()["skills"]}


async def test_skills_are_listed_and_switched(tmp_path: Path) -> None:
    put(
        tmp_path / "skills" / "public" / "prose",
        "prose",
        "license: MIT",
        "metadata: {version: 1.0}",
    )
    put(tmp_path / "home" / "skills" / "custom" / "bad", "Not A Name")
    async with composed(tmp_path) as service:
        assert await listed(service) == {
            "prose": {
                "name": "prose",
                "description": "Does it.",
                "license": "MIT",
                "compatibility": None,
                "metadata": {"version": "1.0"},
                "category": "public",
                "enabled": True,
                "error": None,
            },
            "bad": {
                "name": "bad",
                "description": "",
                "license": None,
                "compatibility": None,
                "metadata": {},
                "category": "custom",
                "enabled": False,
                "error": "`name` must consist of lowercase letters, digits and hyphens, "
                "at most 64 characters: Not A Name",
            },
        }
        off = await service.client.put("/api/skills/prose", json={"enabled": False})
        assert off.json()["enabled"] is False
        shown = (await service.client.get("/api/skills/prose")).json()
        assert "name: prose" in shown.pop("content")
        assert shown == off.json()
        for request in (
            service.client.get("/api/skills/none"),
            service.client.put("/api/skills/none", json={"enabled": True}),
            service.client.get(f"{CUSTOM}/prose"),
        ):
            assert (await request).status_code == 404
        assert (await service.stranger.get("/api/skills")).status_code == 401
    said = json.loads((tmp_path / "home" / "extensions_config.json").read_text())
    assert said == {"skills": {"prose": {"enabled": False}}}


async def test_a_file_that_cannot_be_changed_is_reported(tmp_path: Path) -> None:
    put(tmp_path / "skills" / "public" / "prose", "prose")
    (tmp_path / "extensions_config.json").write_text("{broken")
    async with composed(tmp_path) as service:
        answer = await service.client.put("/api/skills/prose", json={"enabled": False})
        assert answer.status_code == 500
        assert "line 1" in answer.json()["detail"]
        assert str(tmp_path) not in answer.text
    assert (tmp_path / "extensions_config.json").read_text() == "{broken"


async def test_a_skill_of_a_thread_is_installed(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_SCAN) as service:
        body = await sent(service)
        answer = await service.client.post("/api/skills/install", json=body)
        assert answer.json() == {
            "success": True,
            "skill_name": "poems",
            "message": "The skill poems is installed.",
        }
        assert (await listed(service, CUSTOM))["poems"]["category"] == "custom"
        again = await service.client.post("/api/skills/install", json=body)
        assert again.status_code == 409


async def test_skills_that_are_not_installed_are_not_found(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_SCAN) as service:
        sound = await sent(service)
        broken = await sent(service, "broken.skill", "no frontmatter")
        other = await sent(service, "poems.zip")
        up = "/mnt/user-data/uploads"
        for body, status in (
            (broken, 400),
            (other, 400),
            ({**sound, "path": f"{up}/none.skill"}, 404),
            ({**sound, "path": up}, 400),
            ({**sound, "path": f"{up}/../../../x.skill"}, 403),
            ({**sound, "path": "/etc/passwd"}, 403),
            ({**sound, "path": "/mnt/skills/public/x.skill"}, 403),
            ({**sound, "thread_id": "../t1"}, 422),
            ({**sound, "thread_id": "none"}, 404),
            ({"path": up}, 422),
        ):
            answer = await service.client.post("/api/skills/install", json=body)
            assert answer.status_code == status, body
            assert answer.json()["detail"]
            assert str(tmp_path) not in answer.text
        assert "poems" not in await listed(service)


async def test_the_demo_model_judges_nothing(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        answer = await service.client.post("/api/skills/install", json=await sent(service))
        assert answer.status_code == 400
        assert "skills.scan" in answer.json()["detail"]


async def test_editing_and_taking_back(tmp_path: Path) -> None:
    async with composed(tmp_path, NO_SCAN) as service:
        client = service.client
        await client.post("/api/skills/install", json=await sent(service))
        address = f"{CUSTOM}/poems"
        edited = await client.put(address, json={"content": version("Two.")})
        assert edited.json()["content"] == version("Two.")
        assert (await client.put(address, json={"content": "x"})).status_code == 400
        assert (await client.get(address)).json() == edited.json()
        back = await client.post(f"{address}/rollback", json={"history_index": -1})
        assert back.json()["content"] == MD
        gone = await client.post(f"{address}/rollback", json={"history_index": 9})
        assert gone.status_code == 404
        first = await client.post(f"{address}/rollback", json={"history_index": 0})
        assert first.status_code == 400
        assert (await client.delete(address)).json() == {"success": True}
        assert (await client.delete(address)).status_code == 404
        changes = (await client.get(f"{address}/history")).json()["history"]
        assert [change["action"] for change in changes] == [
            *("install", "update", "rollback", "delete")
        ]
        assert changes[1]["prev_content"] == MD
        for name in ("none", "..%2f..%2fx", "A"):
            assert (await client.get(f"{CUSTOM}/{name}/history")).status_code == 404
