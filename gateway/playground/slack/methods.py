"""Slack's Web API methods on a workspace. Independent of HTTP; responses are JSON bodies."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from gateway.playground.slack.agents import SlackAgentMethods
from gateway.playground.slack.checks import block_error, text_findings
from gateway.playground.slack.permissions import SlackApiError, SlackPermissions
from gateway.playground.slack.state import SlackFile, SlackMessage, SlackWorkspace
from gateway.playground.slack.streams import SlackStreamMethods

_SCOPES_OF_KINDS = {
    "channel": "channels:read",
    "group": "groups:read",
    "im": "im:read",
    "mpim": "mpim:read",
}

Answer = dict[str, Any]
Arguments = Mapping[str, Any]


class SlackMethods:
    """The methods a bot may call.

    Args:
        workspace: The workspace that they act on.
        url: Makes an absolute URL from a path on this server.
        violation: Receives a violation.
        posted: Called with every new message of the bot. Slack also sends an event for it.
        edited: Called with every edited message and its previous version. Slack also sends an event for it.
    """

    def __init__(
        self,
        workspace: SlackWorkspace,
        *,
        url: Callable[[str], str],
        violation: Callable[[str], None],
        posted: Callable[[SlackMessage], None],
        edited: Callable[[SlackMessage, Mapping[str, Any]], None],
    ) -> None:
        self._workspace = workspace
        self._url = url
        self._violation = violation
        self._permissions = SlackPermissions(workspace, violation=violation, posted=posted)
        self._edited = edited
        self.page_size = 1000
        self.scopes: set[str] = set()
        self.token_of = ""
        self.team = workspace.team
        self._table: dict[str, Callable[[Arguments], Answer]] = {
            "auth.test": self._auth_test,
            "users.info": self._user,
            "users.list": self._users,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "conversations.history": self._history,
            "conversations.info": self._channel,
            "conversations.members": self._members,
            "conversations.open": self._open,
            "conversations.replies": self._replies,
            "files.getUploadURLExternal": self._announce,
            "files.completeUploadExternal": self._share,
            "files.info": self._file,
            "usergroups.list": self._groups,
            **SlackAgentMethods(self._permissions).table,
            **SlackStreamMethods(self._permissions).table,
        }

    def answer(self, method: str, arguments: Arguments) -> Answer:
        """Return the body of Slack's response."""
        run = self._table.get(method)
        if run is None:
            self._violation(f"{method}: this stand-in does not know it")
            return {"ok": False, "error": "unknown_method"}
        try:
            return {"ok": True, **run(arguments)}
        except SlackApiError as refusal:
            return {"ok": False, "error": str(refusal)}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._violation(f"{method}: makes no sense: {error!r}")
            return {"ok": False, "error": "invalid_arguments"}

    def _auth_test(self, _: Arguments) -> Answer:
        team = self._workspace
        if self.token_of:  # A person's token.
            return {"team": "Team", "user": self.token_of, "team_id": team.team, "user_id": "U1ANN"}
        return {
            "url": "https://team.slack.test/",
            "team": "Team",
            "user": "parley",
            "team_id": self.team,
            "user_id": team.bot_user,
            "bot_id": team.bot_id,
            "enterprise_id": self.team if self.team.startswith("E") else None,
            "is_enterprise_install": self.team.startswith("E"),
        }

    def _user(self, given: Arguments) -> Answer:
        if self._workspace.people.get(given["user"], {}).get("is_hidden"):
            raise SlackApiError("user_not_visible")
        return {"user": self._described(given["user"])}

    def _members(self, given: Arguments) -> Answer:
        self._channel(given)
        members = sorted(self._workspace.channels[str(given["channel"])].members)
        start = int(given.get("cursor") or 0)
        end = start + min(int(given.get("limit") or 100), self.page_size)
        after = str(end) if end < len(members) else ""
        return {"members": members[start:end], "response_metadata": {"next_cursor": after}}

    def _users(self, given: Arguments) -> Answer:
        if self.team.startswith("E") and not given.get("team_id"):
            raise SlackApiError("missing_argument")
        talking = {user for one in self._workspace.channels.values() for user in one.members}
        described = map(self._described, sorted(talking | set(self._workspace.people)))
        listed = [u for u in described if u["team_id"] == self.team and not u.get("is_hidden")]
        start = int(given.get("cursor") or 0)
        end = start + min(int(given.get("limit") or 100), self.page_size)
        after = str(end) if end < len(listed) else ""
        return {"members": listed[start:end], "response_metadata": {"next_cursor": after}}

    def _described(self, user: str) -> dict[str, Any]:
        member = {"id": user, "team_id": self.team, "is_bot": False}
        return member | self._workspace.people.get(user, {})

    def _channel(self, given: Arguments) -> Answer:
        channel = self._workspace.channels.get(str(given["channel"]))
        if channel is None:
            raise SlackApiError("channel_not_found")
        if _SCOPES_OF_KINDS[channel.kind] not in self.scopes:
            raise SlackApiError("missing_scope")
        is_member = self._workspace.bot_user in channel.members
        if not is_member and channel.kind != "channel":
            raise SlackApiError("channel_not_found")
        name = {"im": "", "mpim": "mpdm-ann--bob-1"}.get(channel.kind, channel.name or "room")
        return {
            "channel": {
                "id": channel.id,
                **({"name": name} if name else {}),
                "is_im": channel.kind == "im",
                "is_mpim": channel.kind == "mpim",
                "is_private": channel.kind != "channel",
                "is_member": is_member,
            }
        }

    def _groups(self, _: Arguments) -> Answer:
        groups = self._workspace.groups.items()
        return {
            "usergroups": [
                {"id": key, "handle": handle, "name": handle.title()} for key, handle in groups
            ]
        }

    def _post(self, given: Arguments) -> Answer:
        channel = self._permissions.writable(given["channel"])
        text, blocks = str(given.get("text") or ""), list(given.get("blocks") or ())
        self._check_text(text, blocks)
        message = SlackMessage(
            channel=channel,
            ts=self._workspace.ts(),
            user=self._workspace.bot_user,
            bot_id=self._workspace.bot_id,
            text=text[:40_000],
            blocks=blocks,
            thread_ts=self._permissions.root(channel, str(given.get("thread_ts") or "")),
            metadata=given.get("metadata"),
        )
        if given.get("unfurl_links") is not False or given.get("unfurl_media") is not False:
            self._violation("chat.postMessage: links of a model must not be unfurled")
        if given.get("link_names") or given.get("parse", "none") != "none":
            self._violation("chat.postMessage: names in the text would mention people")
        self._permissions.add(message)
        return {"channel": channel, "ts": message.ts, "message": message.fields()}

    def _update(self, given: Arguments) -> Answer:
        message = self._permissions.own(given)
        if message.streams:
            raise SlackApiError("streaming_state_conflict")
        text, blocks = str(given.get("text") or ""), list(given.get("blocks") or ())
        self._check_text(text, blocks)
        if given.get("parse") != "none" or given.get("link_names"):
            self._violation("chat.update: names and addresses in the text become links")
        before = message.fields()
        message.earlier.append(message.words)
        message.text, message.blocks = text, blocks
        message.metadata = given.get("metadata") or message.metadata
        self._edited(message, before)
        return {"channel": message.channel, "ts": message.ts, "text": text}

    def _delete(self, given: Arguments) -> Answer:
        message = self._permissions.own(given)
        if message.streams:
            raise SlackApiError("cant_delete_message")
        self._workspace.posted.remove(message)
        return {"channel": message.channel, "ts": message.ts}

    def _react(self, given: Arguments) -> Answer:
        users = self._permissions.target(given).reactions.setdefault(given["name"], set())
        if self._workspace.bot_user in users:
            raise SlackApiError("already_reacted")
        users.add(self._workspace.bot_user)
        return {}

    def _unreact(self, given: Arguments) -> Answer:
        users = self._permissions.target(given).reactions.get(given["name"], set())
        if self._workspace.bot_user not in users:
            raise SlackApiError("no_reaction")
        users.discard(self._workspace.bot_user)
        return {}

    def _history(self, given: Arguments) -> Answer:
        self._permissions.readable(given["channel"])
        return self._page(self._workspace.flat(given["channel"])[::-1], given)

    def _replies(self, given: Arguments) -> Answer:
        self._permissions.readable(given["channel"])
        thread = self._workspace.thread(given["channel"], given["ts"])
        if not thread:
            raise SlackApiError("thread_not_found")
        return self._page(thread, given, keep=thread[0])

    def _open(self, given: Arguments) -> Answer:
        """Open the direct messages with one person. The fake derives their ID from the person's."""
        user = str(given["users"])
        if self._workspace.people.get(user, {}).get("deleted"):
            raise SlackApiError("user_disabled")
        channel = self._workspace.channel(f"D{user}", kind="im", members={user})
        return {"channel": {"id": channel.id}}

    def _page(
        self, found: list[SlackMessage], given: Arguments, *, keep: SlackMessage | None = None
    ) -> Answer:
        oldest, start = float(given.get("oldest") or 0), int(given.get("cursor") or 0)
        latest = float(given.get("latest") or "inf")
        inside = [
            m for m in found if (m is keep or oldest < float(m.ts) < latest) and not m.only_for
        ]
        end = start + min(int(given.get("limit") or 100), self.page_size)
        told = str(given.get("include_all_metadata")).lower() in {"1", "true"}
        more = end < len(inside)
        return {
            "messages": [
                m.fields(metadata=told) | self._workspace.parent(m) for m in inside[start:end]
            ],
            "has_more": more,
            "response_metadata": {"next_cursor": str(end) if more else ""},
        }

    def _announce(self, given: Arguments) -> Answer:
        length = int(given["length"])
        if length < 1:
            raise SlackApiError("missing_argument")
        file = SlackFile(
            id=f"F{uuid.uuid4().hex[:10].upper()}", name=given["filename"], length=length
        )
        if alt := str(given.get("alt_txt") or ""):
            file.extra["alt_txt"] = alt
        self._workspace.files[file.id] = file
        return {"upload_url": self._url(f"/upload/{file.id}"), "file_id": file.id}

    def _share(self, given: Arguments) -> Answer:
        channel = self._permissions.writable(given["channel_id"])
        found = [self._workspace.files.get(str(entry.get("id"))) for entry in given["files"]]
        files = [file for file in found if file and file.content is not None and not file.shared]
        if len(files) != len(found):
            raise SlackApiError("file_not_found")
        for file in files:
            file.shared = True
        shown = [{"id": file.id, "name": file.name, "size": file.length} for file in files]
        message = SlackMessage(
            channel=channel,
            ts=self._workspace.ts(),
            user=self._workspace.bot_user,
            bot_id=self._workspace.bot_id,
            subtype="file_share",
            text=str(given.get("initial_comment") or ""),
            files=shown,
            thread_ts=self._permissions.root(channel, str(given.get("thread_ts") or "")),
        )
        self._permissions.add(message)
        return {"files": shown}

    def _file(self, given: Arguments) -> Answer:
        file = self._workspace.files.get(given["file"])
        if file is None:
            raise SlackApiError("file_not_found")
        address = self._url(f"/files-pri/{file.id}")
        csv = {"list_csv_download_url": f"{address}/csv"} if file.csv is not None else {}
        return {
            "file": {
                "id": file.id,
                "name": file.name,
                "mimetype": file.mimetype,
                "mode": "hosted",
                "size": file.length,
                "url_private_download": address,
                **csv,
                **file.extra,
            }
        }

    def _check_text(self, text: str, blocks: list[dict[str, Any]]) -> None:
        for finding in text_findings(text, blocks):
            self._violation(f"message: {finding}")
        if not text and not blocks:
            raise SlackApiError("no_text")
        if error := block_error(blocks):
            raise SlackApiError(error)
