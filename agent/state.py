"""ThreadState: LangChain's agent state plus Parley's fields, each with its reducer. Pure."""

from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import AgentState
from typing_extensions import TypedDict


class SandboxState(TypedDict):
    """The thread's sandbox."""

    sandbox_id: str | None


class ThreadData(TypedDict):
    """The thread's folders, as the agent sees them."""

    workspace_path: str
    uploads_path: str
    outputs_path: str


class UploadedFile(TypedDict):
    """A file of this turn's message. `path` is virtual, `size` in bytes."""

    filename: str
    size: int
    path: str
    extension: NotRequired[str]


class ViewedImage(TypedDict):
    """An image to show to the model; `size` in bytes. Its content stays on disk, to keep checkpoints small."""

    mime_type: str
    size: int


SHOWS_IMAGES = "shows_images"
"""Key of a tool message's `additional_kwargs`. Its value lists the virtual paths of the images to show the model."""


class Todo(TypedDict):
    """One step of the plan; `id` is unique in it, `status` is pending, in_progress or completed."""

    id: str
    title: str
    status: str


class PromotedTools(TypedDict):
    """The tools that tool_search has loaded, in this order; `catalog_hash` identifies the tools it can load."""

    catalog_hash: str
    names: list[str]


MAX_PROMOTED = 40
"""Maximum number of loaded tools of a thread. With all other tools, it stays below 128, OpenAI's limit."""


class HistorySummary(TypedDict):
    """Replaces the beginning of a long thread in requests to the model.

    Attributes:
        text: The summary; "" = there is none yet.
        kept_from: The ID of the first message that requests contain.
        summarized_to: The ID of the first message that the summary does not cover; usually `kept_from`.
        kept_calls: The IDs of earlier tool calls that requests contain.
        important: What people marked as important before `kept_from`, in their words.
        parts: How many files hold the messages before `kept_from`.
    """

    text: str
    kept_from: str
    summarized_to: str
    kept_calls: list[str]
    important: list[str]
    parts: int


class LeftOutTexts(TypedDict):
    """Long texts that requests contain only in part.

    Attributes:
        before: The ID of the first message whose tool result is shown in full; "" = all are.
        whole: The IDs of earlier tool calls whose results are shown in full.
        unsaved: The IDs of messages whose texts could not be saved to a file.
        in_files: For each message ID, the lines of an existing file that contain its text, so the text was not saved.
        shortened: For each message ID, how many characters of its text are shown.
    """

    before: str
    whole: list[str]
    unsaved: list[str]
    in_files: dict[str, str]
    shortened: dict[str, int]


def merge_sandbox(existing: SandboxState | None, new: SandboxState | None) -> SandboxState | None:
    """Keep the latest sandbox. None changes nothing, so that parallel tool calls can both write it.

    >>> merge_sandbox({"sandbox_id": "local:t"}, None)
    {'sandbox_id': 'local:t'}
    """
    return existing if new is None else new


def merge_artifacts(existing: list[str] | None, new: list[str] | None) -> list[str]:
    """Append without duplicates. A path keeps its first position.

    >>> merge_artifacts(["a", "b"], ["b", "c"])
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys([*(existing or []), *(new or [])]))


def merge_todos(existing: list[Todo] | None, new: list[Todo] | None) -> list[Todo] | None:
    """Replace the plan. None keeps it, and an empty list clears it."""
    return existing if new is None else new


def merge_viewed_images(
    existing: dict[str, ViewedImage] | None, new: dict[str, ViewedImage] | None
) -> dict[str, ViewedImage]:
    """Add images by path. None changes nothing, and an empty mapping clears them.

    >>> merge_viewed_images({"a": {"mime_type": "image/png", "size": 9}}, {})
    {}
    """
    if new is None:
        return dict(existing or {})
    return {**(existing or {}), **new} if new else {}


def merge_promoted(
    existing: PromotedTools | None, new: PromotedTools | None
) -> PromotedTools | None:
    """Add tools of the same catalog, and drop the oldest beyond `MAX_PROMOTED`. Tools of another catalog replace all.

    >>> merge_promoted({"catalog_hash": "h", "names": ["a"]}, {"catalog_hash": "h", "names": ["b", "a"]})["names"]
    ['a', 'b']
    """
    if new is None:
        return existing
    names = new["names"]
    if existing is not None and existing["catalog_hash"] == new["catalog_hash"]:
        names = list(dict.fromkeys([*existing["names"], *names]))
        others = [name for name in names if name not in new["names"]]
        dropped = set(others[: max(0, len(names) - MAX_PROMOTED)])
        names = [name for name in names if name not in dropped]
    return PromotedTools(catalog_hash=new["catalog_hash"], names=names[-MAX_PROMOTED:])


class ThreadState(AgentState[Any]):
    """The state of a thread. `uploaded_files` holds this turn's files only."""

    sandbox: NotRequired[Annotated[SandboxState | None, merge_sandbox]]
    thread_data: NotRequired[ThreadData | None]
    title: NotRequired[str | None]
    artifacts: NotRequired[Annotated[list[str], merge_artifacts]]
    todos: NotRequired[Annotated[list[Todo] | None, merge_todos]]
    uploaded_files: NotRequired[list[UploadedFile] | None]
    viewed_images: NotRequired[Annotated[dict[str, ViewedImage], merge_viewed_images]]
    promoted: NotRequired[Annotated[PromotedTools | None, merge_promoted]]
    summary: NotRequired[HistorySummary | None]
    left_out: NotRequired[LeftOutTexts | None]
