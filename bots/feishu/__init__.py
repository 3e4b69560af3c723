"""Feishu and Lark: long connection, one growing card per turn."""
