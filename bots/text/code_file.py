"""Turns code that is too long for a message into a file. Pure."""

from dataclasses import dataclass

from bots.text.markdown import parse
from bots.text.tree import CodeBlock

_ENDINGS = {
    "bash": "sh", "c": "c", "c#": "cs", "c++": "cpp", "cpp": "cpp", "csharp": "cs", "css": "css", "csv": "csv",
    "diff": "diff", "dockerfile": "dockerfile", "go": "go", "golang": "go", "html": "html", "ini": "ini",
    "java": "java", "javascript": "js", "js": "js", "json": "json", "jsx": "jsx", "kotlin": "kt", "latex": "tex",
    "lua": "lua", "markdown": "md", "md": "md", "patch": "patch", "perl": "pl", "php": "php", "powershell": "ps1",
    "py": "py", "python": "py", "r": "r", "ruby": "rb", "rust": "rs", "rs": "rs", "scala": "scala", "sh": "sh",
    "shell": "sh", "sql": "sql", "svg": "svg", "swift": "swift", "toml": "toml", "ts": "ts", "tsx": "tsx",
    "typescript": "ts", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zsh": "sh",
}  # fmt: skip
"""Language of a fence -> file extension."""


@dataclass(frozen=True, slots=True)
class CodeFile:
    """Code, and the name of its file."""

    name: str
    text: str


def code_file(markdown: str) -> CodeFile | None:
    r"""Return the code if a text is only one block of code.

    >>> code_file("```python\nx = 1\n```")
    CodeFile(name='code.py', text='x = 1')
    >>> code_file("see\n\n```\nx\n```")
    """
    blocks = parse(markdown)
    if len(blocks) != 1 or not isinstance(blocks[0], CodeBlock):
        return None
    code = blocks[0]
    return CodeFile(f"code.{_ENDINGS.get(code.language.lower(), 'txt')}", code.text)
