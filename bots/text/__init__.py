"""Markdown, platform-neutral: one AST, one splitter."""
