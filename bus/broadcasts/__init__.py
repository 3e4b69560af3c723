"""Messages of the administrator to many chats."""
