"""Rows in the form of the REST API: conversations, pairings, tokens. Commands without a running service use it too."""

from dataclasses import asdict
from typing import Any

from gateway.text_table import iso_time
from store.api_tokens import ApiToken
from store.conversations import Conversation
from store.pairings import Pairing


def conversation_view(row: Conversation) -> dict[str, Any]:
    """Return a conversation."""
    return {
        "id": row.id,
        **asdict(row.key),
        "thread_id": row.thread_id,
        "last_seq": row.last_seq,
        "pending": row.pending,
        "created_at": iso_time(row.created_at),
        "updated_at": iso_time(row.updated_at),
    }


def pairing_view(row: Pairing) -> dict[str, Any]:
    """Return a pairing."""
    return {
        "code": row.code,
        "channel": row.channel,
        "workspace": row.workspace,
        "user_id": row.user_id,
        "user_name": row.user_name,
        "created_at": iso_time(row.created_at),
        "approved_at": iso_time(row.approved_at),
    }


def api_token_view(token: ApiToken) -> dict[str, Any]:
    """Return a named token, without its hash."""
    return {
        "name": token.name,
        "scope": token.scope,
        "thread_id": token.thread_id,
        "created_at": iso_time(token.created_at),
        "expires_at": iso_time(token.expires_at),
    }
