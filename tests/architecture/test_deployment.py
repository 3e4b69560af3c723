"""The container files are consistent with each other, with the program and with their documentation."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import load_config
from tests.journeys.service import serving

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((KUBERNETES / "parley.yaml").read_text("utf-8"))
)
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text("utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (one for one in MANIFESTS if one["kind"] == kind)
    return found


def pod() -> dict[str, Any]:
    return dict(manifest("Deployment")["spec"]["template"]["spec"])


def test_the_pod_is_unprivileged_and_read_only() -> None:
    user = int(re.findall(r"^USER (\d+):", DOCKERFILE, re.M)[0])
    security = pod()["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] == security["fsGroup"] == user
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod()["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = {mount["mountPath"] for mount in container["volumeMounts"]} - {"/app/config.yaml"}
    assert written == {"/data", "/tmp"}  # noqa: S108 - a mount point
    assert pod()["automountServiceAccountToken"] is False


def test_only_one_pod_uses_the_volume() -> None:
    spec = manifest("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    volumes = {volume["name"]: volume for volume in pod()["volumes"]}
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == manifest("PersistentVolumeClaim")["metadata"]["name"]


def test_labels_ports_and_names_fit_together() -> None:
    labels = manifest("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert manifest("Deployment")["spec"]["selector"]["matchLabels"] == labels
    service = manifest("Service")
    assert service["spec"]["selector"] == labels
    (container,) = pod()["containers"]
    assert service["spec"]["ports"][0]["targetPort"] in {one["name"] for one in container["ports"]}
    (rule,) = manifest("Ingress")["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"] == {
        "name": service["metadata"]["name"],
        "port": {"name": service["spec"]["ports"][0]["name"]},
    }
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))
    assert kustomization["resources"] == ["parley.yaml"]
    assert kustomization["images"][0]["name"] == container["image"]


def test_the_mounted_configuration_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(manifest("ConfigMap")["data"]["config.yaml"])
    config = load_config(str(file), {"PARLEY_HOME": str(tmp_path)})
    assert config.warnings == ()
    (container,) = pod()["containers"]
    assert config.gateway.port == container["ports"][0]["containerPort"]
    (rule,) = manifest("Ingress")["spec"]["rules"]
    assert rule["host"] in config.gateway.allowed_hosts
    grace_s = pod()["terminationGracePeriodSeconds"]
    assert grace_s > config.bus.drain_s + 7


async def test_probes_are_answered(tmp_path: Path) -> None:
    (container,) = pod()["containers"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    async with serving(tmp_path, {}) as service, service.client() as client:
        for probe in probes:
            headers = {one["name"]: one["value"] for one in probe["httpHeaders"]}
            assert (await client.get(probe["path"], headers=headers)).status_code == 200
        # Without their header, probes would be refused.
        address = {"Host": "10.1.2.3:8001"}
        assert (await client.get("/health", headers=address)).status_code == 421


def test_compose_runs_the_image_hardened() -> None:
    parley = COMPOSE["services"]["parley"]
    assert parley["read_only"] is True
    assert parley["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in parley["security_opt"]
    port = parley["command"][parley["command"].index("--port") + 1]
    assert parley["ports"] == [f"127.0.0.1:{port}:{port}"]
    proxy = COMPOSE["services"]["proxy"]
    assert proxy["profiles"] == ["proxy"]
    assert proxy["environment"]["PARLEY_UPSTREAM"] == f"${{PARLEY_UPSTREAM:-parley:{port}}}"
    template = (ROOT / "deploy" / "nginx" / "parley.conf.template").read_text("utf-8")
    assert set(re.findall(r"\$\{(\w+)\}", template)) == {
        name for name in proxy["environment"] if name.startswith("PARLEY_")
    }


@pytest.mark.parametrize("name", re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M))
def test_what_the_image_copies_is_in_its_context(name: str) -> None:
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for path in name.split():
        assert (ROOT / path).exists()
        assert path in allowed


def test_the_nodes_of_compose_share_database_and_files_and_have_folders_of_their_own(
    tmp_path: Path,
) -> None:
    services = COMPOSE["services"]
    nodes = [services["node-1"], services["node-2"]]
    assert [node["profiles"] for node in nodes] == [["scale"], ["scale"]]
    homes, urls = (
        {node["environment"][name] for node in nodes}
        for name in ("PARLEY_HOME", "PARLEY_DATABASE_URL")
    )
    assert (len(homes), len(urls)) == (2, 1)
    assert len({port for node in nodes for port in node["ports"]}) == len(nodes)
    assert services["postgres"]["profiles"] == ["scale"]
    file = ROOT / "deploy" / "compose" / "scale.yaml"
    config = load_config(str(file), {**nodes[0]["environment"], "PARLEY_HOME": str(tmp_path)})
    assert config.warnings == ()
    assert config.database.url == urls.pop()
    assert config.files == Path("/data")
    assert all(str(config.files) in home for home in homes)
    assert all(mount.endswith((":/data", ":ro")) for node in nodes for mount in node["volumes"])


def test_pods_that_share_a_database_differ_in_what_they_must() -> None:
    folder = ROOT / "deploy" / "kubernetes-nodes"
    overlay = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    assert overlay["resources"] == ["../kubernetes", "disruption.yaml"]
    patches = {
        one["kind"]: one for one in yaml.safe_load_all((folder / "nodes.yaml").read_text("utf-8"))
    }
    for kind, patch in patches.items():
        assert patch["metadata"]["name"] == manifest(kind)["metadata"]["name"]
    spec = patches["Deployment"]["spec"]
    assert spec["replicas"] > 1
    assert spec["strategy"]["type"] == "RollingUpdate"
    assert patches["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    config = yaml.safe_load(patches["ConfigMap"]["data"]["config.yaml"])
    (container,) = spec["template"]["spec"]["containers"]
    assert config["storage"]["url"] == f"file://{container['volumeMounts'][0]['mountPath']}"
    assert config["database"]["url"] == "$PARLEY_DATABASE_URL"


def test_the_docker_sandbox_of_compose_maps_what_is_mounted(tmp_path: Path) -> None:
    file = ROOT / "deploy" / "compose" / "docker-sandbox.yaml"
    parley = yaml.safe_load(file.read_text("utf-8"))["services"]["parley"]
    assert "/var/run/docker.sock:/var/run/docker.sock" in parley["volumes"]
    assert "${PARLEY_HOST_DATA}:/data" in parley["volumes"]
    dockerfile = (ROOT / parley["build"]["dockerfile"]).read_text("utf-8")
    assert f"FROM {COMPOSE['services']['parley']['image']}\n" in dockerfile
    page = (ROOT / "docs" / "howto" / "sandbox-in-docker.md").read_text("utf-8")
    (section,) = (
        block for block in re.findall(r"```yaml\n(.*?)```", page, re.S) if "path_map" in block
    )
    (tmp_path / "config.yaml").write_text(section)
    environment = {"PARLEY_HOST_DATA": "/srv/parley", "PARLEY_HOST_SKILLS": "/src/skills"}
    assert environment.keys() <= parley["environment"].keys()
    config = load_config(
        str(tmp_path / "config.yaml"), {**environment, "PARLEY_HOME": str(tmp_path)}
    )
    assert config.agent.sandbox.docker.path_map == {
        "/data": "/srv/parley",
        "/app/skills": "/src/skills",
    }
