"""Private names of other packages are used only where the decision record's table permits them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bots", "bus", "gateway", "store")
RECORD = ROOT / "docs" / "decisions" / "0038-private-names.md"
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
ROW = re.compile(r"^\| `(?P<file>[^`]+)` \| (?P<names>[^|]+) \| [^|]+ \|$", re.MULTILINE)


def is_private(name: str) -> bool:
    """Return whether a name is private: one underscore, then other characters."""
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


def own_names() -> set[str]:
    """Return the private names that the product itself defines or assigns."""
    found: set[str] = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                    found.add(name)
    return found


def imported_names(node: ast.AST) -> list[str]:
    """Return the parts of the names that a statement imports from other packages."""
    match node:
        case ast.Import(names=names):
            modules = [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            modules = [f"{module}.{alias.name}" for alias in names]
        case _:
            return []
    return [
        part
        for parts in (module.split(".") for module in modules)
        if parts[0] not in (*PACKAGES, "__future__")
        for part in parts
    ]


def looked_up_names(node: ast.AST) -> list[str]:
    """Return the names that an expression passes to `getattr` and similar functions, or looks up in `vars`."""
    match node:
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, key, *_]):
            pass
        case ast.Subscript(value=ast.Call(func=ast.Name(id="vars")), slice=key):
            pass
        case _:
            return []
    return [key.value] if isinstance(key, ast.Constant) and isinstance(key.value, str) else []


def foreign_names(tree: ast.Module, own: set[str]) -> Iterator[str]:
    """Yield the private names of other packages that a module uses."""
    for node in ast.walk(tree):
        names = [*imported_names(node), *looked_up_names(node)]
        if isinstance(node, ast.Attribute) and node.attr not in own:
            names.append(node.attr)
        yield from filter(is_private, names)


def test_private_names_of_other_packages_are_in_the_table() -> None:
    own = own_names()
    used = {file: names for file, tree in TREES.items() if (names := set(foreign_names(tree, own)))}
    rows = ROW.finditer(RECORD.read_text("utf-8"))
    assert used == {row["file"]: set(re.findall(r"`(\w+)`", row["names"])) for row in rows}
