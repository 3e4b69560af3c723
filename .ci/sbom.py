"""Prints the bill of materials of the locked packages: CycloneDX 1.6 JSON, from requirements.lock and pyproject.toml.

    python .ci/sbom.py requirements.lock > parley.cdx.json

The hashes come from the lock file; pip and uv install nothing else. Licenses and dependencies come from the packages
that are installed for the Python that runs this script. Packages that are not installed, such as those for other
systems, have none. The same input gives the same output; SOURCE_DATE_EPOCH sets its time.
"""

import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = re.compile(
    r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)(?:\s*;\s*([^\\\n]+?))?\s*(?:\\|$)"
)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
REQUIREMENT = re.compile(r"^[A-Za-z0-9._-]+")


def normalized(name: str) -> str:
    """Return a package's name as package indexes normalize it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: Path) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """Yield name, version, environment marker and hashes of each package of a lock file."""
    for block in re.split(r"\n(?=\S)", lock.read_text("utf-8").strip()):
        found = PACKAGE.match(block)
        if found is None:
            raise SystemExit(f"{lock}: not understood: {block.splitlines()[0]}")
        yield normalized(found[1]), found[2], found[3], HASH.findall(block)


def installed(name: str) -> Distribution | None:
    """Return what is installed under a name, in any version."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def component(name: str, version: str, marker: str | None, hashes: list[str]) -> dict[str, object]:
    """Return a package as CycloneDX describes it."""
    purl = f"pkg:pypi/{name}@{version}"
    entry: dict[str, object] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{version}/",
                "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes],
            }
        ],
    }
    if marker:
        entry["properties"] = [{"name": "parley:installed-if", "value": marker}]
    package = installed(name)
    if package is not None and package.version == version:
        license_ = package.metadata.get("License-Expression")
        if license_:
            entry["licenses"] = [{"expression": license_}]
    return entry


def dependencies(
    components: list[dict[str, object]], root: str, direct: list[str]
) -> list[dict[str, object]]:
    """Return who needs whom, as far as the packages are installed and locked."""

    def refs(requirements: list[str]) -> list[str]:
        names = {normalized(found[0]) for r in requirements if (found := REQUIREMENT.match(r))}
        return sorted(str(entry["bom-ref"]) for entry in components if entry["name"] in names)

    graph: list[dict[str, object]] = [{"ref": root, "dependsOn": refs(direct)}]
    for entry in components:
        package = installed(str(entry["name"]))
        known = package is not None and package.version == entry["version"]
        needed = (package.requires or []) if package is not None and known else []
        graph.append(
            {
                "ref": entry["bom-ref"],
                "dependsOn": refs([text for text in needed if "extra ==" not in text]),
            }
        )
    return graph


def bill_of_materials(lock: Path) -> dict[str, object]:
    """Return the document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    components = [component(*found) for found in locked(lock)]
    root = f"pkg:pypi/{project['name']}@{project['version']}"
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.now(UTC).timestamp())
    stamp = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + lock.read_text('utf-8'))}",
        "version": 1,
        "metadata": {
            "timestamp": stamp,
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"license": {"id": project["license"]}}],
            },
        },
        "components": components,
        "dependencies": dependencies(components, root, project["dependencies"]),
    }


if __name__ == "__main__":
    json.dump(bill_of_materials(Path(sys.argv[1])), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
