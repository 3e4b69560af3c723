"""Platform-neutral Markdown: one syntax tree and one splitter."""
