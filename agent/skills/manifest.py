"""Parses SKILL.md: YAML frontmatter, then instructions. Pure.

The format is defined by agentskills.io. `metadata.parley-only-tools` is Parley's own key, because the standard cannot
restrict tools.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from agent.errors import SkillInvalid

FILE = "SKILL.md"

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_COMPATIBILITY_CHARS = 500
MAX_FRONTMATTER_CHARS = 16_384
MAX_NESTING = 20
MAX_BYTES = 256 * 1024
"""Largest SKILL.md, bytes. The agent reads the whole file."""

KEYS = frozenset(
    {
        *("name", "description", "license", "allowed-tools"),
        *("metadata", "compatibility", "version", "author"),
    }
)
"""Keys allowed when a skill is installed or edited. Files on disk may contain others."""

RESERVED = frozenset({"custom", "install"})
"""Names that would collide with API routes."""

_FRONTMATTER = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_GRANT = re.compile(r"(?P<name>[^\s,()]+)(?:\((?P<pattern>[^()]*)\))?")
"""A tool's name with an optional pattern, such as `(git:*)`, which limits the approval to some calls."""

ONLY_TOOLS = "parley-only-tools"
"""Key in `metadata` that lists the only tools that may be called while the skill is in use."""

_ALIASES = {
    "Bash": "bash",
    "BashOutput": "bash_output",
    "KillBash": "kill_bash",
    "KillShell": "kill_bash",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "str_replace",
    "Grep": "grep",
    "Glob": "glob",
    "LS": "ls",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
}
"""Maps tool names in skills written for other agents to Parley's names."""

_COLON_INSIDE = re.compile(r"^(name|description|license|author): +([^\s\"'|>\[{&*!].*: .*)$", re.M)


@dataclass(frozen=True, slots=True)
class ToolGrant:
    """A tool whose calls need no approval. With a pattern, this holds only for matching calls."""

    name: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillManifest:
    """The frontmatter of a skill.

    Attributes:
        compatibility: What it needs from its environment.
        metadata: Further keys and texts, in the order of the file.
        allowed_tools: The tools that need no approval while it is in use.
        only_tools: The only tools that may be called while it is in use; None = all.
    """

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    allowed_tools: tuple[ToolGrant, ...] = ()
    only_tools: tuple[str, ...] | None = None


def parse_manifest(text: str, *, strict: bool = False) -> SkillManifest:
    r"""Parse a SKILL.md.

    Args:
        text: The whole file.
        strict: Whether unknown keys are rejected.

    Raises:
        SkillInvalid: It is invalid. The message says what to change.

    >>> parse_manifest("---\nname: a-b\ndescription: Does it.\n---\nHow to.").name
    'a-b'
    """
    fields = _fields(text)
    unknown = sorted(str(key) for key in fields.keys() - KEYS)
    if strict and unknown:
        raise SkillInvalid(f"unknown keys in the frontmatter: {_shown(', '.join(unknown))}")
    metadata = _metadata(fields.get("metadata"))
    only = dict(metadata).get(ONLY_TOOLS)
    return SkillManifest(
        name=_name(fields.get("name")),
        description=_description(fields.get("description")),
        license=_license(fields.get("license")),
        compatibility=_compatibility(fields.get("compatibility")),
        metadata=metadata,
        allowed_tools=_grants(fields["allowed-tools"]) if "allowed-tools" in fields else (),
        only_tools=None if only is None else tuple(grant.name for grant in _grants(only)),
    )


def is_name(text: str) -> bool:
    """Return whether this is a valid skill name."""
    return len(text) <= MAX_NAME_CHARS and _NAME.fullmatch(text) is not None


def _fields(text: str) -> Mapping[Any, Any]:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = _FRONTMATTER.match(text)
    if found is None:
        raise SkillInvalid("SKILL.md must start with YAML frontmatter between two `---` lines")
    source = found[1]
    if len(source) > MAX_FRONTMATTER_CHARS:
        raise SkillInvalid(f"the frontmatter has more than {MAX_FRONTMATTER_CHARS} characters")
    fields = _loaded(source)
    if not isinstance(fields, dict):
        raise SkillInvalid("the frontmatter must consist of `key: value` lines")
    return fields


def _loaded(source: str) -> object:
    try:
        _check_depth(source)
        return yaml.safe_load(source)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # An unquoted colon in a description is a common mistake, and its meaning is clear.
        quoted = _COLON_INSIDE.sub(lambda m: f"{m[1]}: {json.dumps(m[2].strip())}", source)
        if quoted != source:
            return _loaded(quoted)
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark else ""
        what = getattr(error, "problem", None) or "it cannot be parsed"
        raise SkillInvalid(
            f"the frontmatter is not valid YAML: {where}{_shown(str(what))}"
        ) from error


def _check_depth(source: str) -> None:
    """Reject deep nesting, which is expensive to load. Raises SkillInvalid, yaml.YAMLError."""
    depth = 0
    for event in yaml.parse(source, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_NESTING:
            raise SkillInvalid("the frontmatter is nested too deeply")


def _name(given: object) -> str:
    if given is None:
        raise SkillInvalid("the frontmatter has no `name`")
    if not isinstance(given, str) or not is_name(given):
        raise SkillInvalid(
            f"`name` must consist of lowercase letters, digits and hyphens, at most {MAX_NAME_CHARS} characters: "
            f"{_shown(str(given))}"
        )
    if given in RESERVED:
        raise SkillInvalid(f"`name` must not be {given!r}: it is reserved")
    return given


def _description(given: object) -> str:
    if given is None:
        raise SkillInvalid("the frontmatter has no `description`")
    text = _one_line(given) if isinstance(given, str) else ""
    if not text:
        raise SkillInvalid("`description` must be a non-empty string")
    if len(text) > MAX_DESCRIPTION_CHARS:
        raise SkillInvalid(f"`description` has more than {MAX_DESCRIPTION_CHARS} characters")
    if "<" in text or ">" in text:
        raise SkillInvalid("`description` must not contain `<` or `>`")
    return text


def _one_line(text: str) -> str:
    """Replace invisible characters, such as control characters, with single spaces."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _license(given: object) -> str | None:
    return _one_line(given)[:MAX_DESCRIPTION_CHARS] if isinstance(given, str) else None


def _compatibility(given: object) -> str | None:
    if given is None:
        return None
    text = _one_line(given) if isinstance(given, str) else ""
    if not text or len(text) > MAX_COMPATIBILITY_CHARS:
        raise SkillInvalid(
            f"`compatibility` must be a text of 1 to {MAX_COMPATIBILITY_CHARS} characters"
        )
    return text


def _metadata(given: object) -> tuple[tuple[str, str], ...]:
    """Return the keys and texts. Numbers become texts. Drops values that the standard does not allow.

    >>> _metadata({"version": 1.0, "author": "A", "other": {"nested": True}})
    (('version', '1.0'), ('author', 'A'))
    """
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise SkillInvalid("`metadata` must consist of `key: value` lines")
    return tuple(
        (_one_line(str(key)), _one_line(str(value)))
        for key, value in given.items()
        if isinstance(value, str | int | float)
    )


def _grants(given: object) -> tuple[ToolGrant, ...]:
    """Parse tool names. The standard separates them with spaces, but lists and commas are also common.

    >>> [(one.name, one.pattern) for one in _grants("Bash(git add:*) Read, mcp__linear__create_issue")]
    [('bash', 'git add:*'), ('read_file', None), ('linear_create_issue', None)]
    """
    entries = [given] if isinstance(given, str) else given
    if not isinstance(entries, list):
        raise SkillInvalid(
            "`allowed-tools` must be a list of tool names, or names separated by spaces"
        )
    if not all(isinstance(one, str) and (one.strip() or one is given) for one in entries):
        raise SkillInvalid("`allowed-tools` contains something other than tool names")
    found = [
        ToolGrant(_tool_name(grant["name"]), grant["pattern"])
        for one in entries
        for grant in _GRANT.finditer(one)
    ]
    return tuple(dict.fromkeys(found))


def _tool_name(name: str) -> str:
    """Return Parley's name for another agent's tool."""
    if name.startswith("mcp__"):
        name = name.removeprefix("mcp__").replace("__", "_", 1)
    return _one_line(_ALIASES.get(name, name))


def _shown(text: str) -> str:
    return "".join(char for char in text[:120] if char.isprintable())
