"""Slack's Web API for agents: status, session, suggested prompts."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.playground.slack.permissions import SlackApiError, SlackPermissions

_SESSIONS = frozenset({"active", "processing", "suspended", "closed"})

Given = Mapping[str, Any]


class SlackAgentMethods:
    """The methods for agents. Only an app that is declared an agent has sessions and prompts."""

    def __init__(self, permissions: SlackPermissions) -> None:
        self._permissions = permissions
        self._workspace = permissions.workspace
        self.table: dict[str, Callable[[Given], dict[str, Any]]] = {
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setSuggestedPrompts": self._set_prompts,
            "agents.sessions.setStatus": self._set_session,
        }

    def _thread(self, given: Given) -> str:
        self._permissions.readable(given["channel_id"])
        root = str(given.get("thread_ts") or "")
        if root and self._workspace.find(given["channel_id"], root) is None:
            raise SlackApiError("invalid_thread_ts")
        return root

    def _set_status(self, given: Given) -> dict[str, Any]:
        status = self._workspace.status(given["channel_id"], self._thread(given))
        status.text = str(given["status"])
        return {}

    def _set_session(self, given: Given) -> dict[str, Any]:
        if not self._workspace.is_agent:
            raise SlackApiError("feature_disabled")
        if given["status"] not in _SESSIONS:
            raise SlackApiError("invalid_status")
        root = self._thread(given)
        if not root:
            raise SlackApiError("thread_ts_required")
        status = self._workspace.status(given["channel_id"], root)
        status.session = str(given["status"])
        status.title = status.title or str(given.get("title") or "")
        return {"agent_status": status.session}

    def _set_prompts(self, given: Given) -> dict[str, Any]:
        if not self._workspace.is_agent:
            raise SlackApiError("not_agent_app")
        key = (given["channel_id"], self._thread(given))
        self._workspace.prompts[key] = [str(prompt["message"]) for prompt in given["prompts"]]
        return {}
