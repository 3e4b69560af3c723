"""Imports objects named `module:attribute`, with a hint about the package to install if the module is missing."""

import importlib
from importlib.util import find_spec
from typing import TypeVar

from agent.errors import ObjectNotImportable

T = TypeVar("T")

PACKAGES = {
    "langchain_anthropic": "langchain-anthropic",
    "langchain_aws": "langchain-aws",
    "langchain_deepseek": "langchain-deepseek",
    "langchain_google_genai": "langchain-google-genai",
    "langchain_google_vertexai": "langchain-google-vertexai",
    "langchain_groq": "langchain-groq",
    "langchain_mistralai": "langchain-mistralai",
    "langchain_ollama": "langchain-ollama",
    "langchain_openai": "langchain-openai",
    "langchain_xai": "langchain-xai",
    "langfuse": "langfuse",
}
"""Configurable modules and the packages that provide them."""


def import_object(use: str) -> object:
    """Import an object by its name `module:attribute`.

    Raises:
        ObjectNotImportable: The name is malformed or cannot be imported. The message says what to do.
    """
    module_name, colon, attribute = use.partition(":")
    if not colon or not module_name or not attribute:
        raise ObjectNotImportable(
            f"{use!r} is not of the form module:name, for example langchain_openai:ChatOpenAI"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ObjectNotImportable(_install_hint(module_name, error.name)) from error
    except ImportError as error:
        raise ObjectNotImportable(f"Could not import module {module_name}: {error}") from error
    except (Exception, SystemExit) as error:  # an import may raise anything
        text = f"Could not import module {module_name}: {type(error).__name__}: {error}"
        raise ObjectNotImportable(text) from error
    try:
        found: object = getattr(module, attribute)
    except AttributeError as error:
        raise ObjectNotImportable(f"Module {module_name} has no attribute {attribute!r}") from error
    return found


def is_importable(use: str) -> bool:
    """Return whether `import_object` returns an object."""
    try:
        import_object(use)
    except ObjectNotImportable:
        return False
    return True


def import_class(use: str, kind: type[T]) -> type[T]:
    """Import a class that is `kind` or derived from it.

    Raises:
        ObjectNotImportable: See `import_object`. Also raised if the object is not such a class.
    """
    found = import_object(use)
    if not isinstance(found, type) or not issubclass(found, kind):
        raise ObjectNotImportable(f"{use} is not a class derived from {kind.__name__}")
    return found


def missing_package_hint(use: str) -> str | None:
    """Return how to install a missing package; None if it is installed. Imports nothing.

    >>> missing_package_hint("json:loads"), missing_package_hint("no_such_package.models:Model")
    (None, 'Could not import module no_such_package.models: there is no such module')
    """
    module_name = use.partition(":")[0]
    top = module_name.partition(".")[0]
    return None if not top or find_spec(top) is not None else _install_hint(module_name, top)


def _install_hint(module_name: str, missing: str | None) -> str:
    top = module_name.partition(".")[0]
    package = PACKAGES.get(top)
    if missing == top and package is not None:
        return (
            f"Missing dependency '{top}'. Install it with `.venv/bin/pip install {package}` "
            f"(or `uv pip install {package}`), then restart Parley."
        )
    if missing is None or missing == module_name or module_name.startswith(f"{missing}."):
        return f"Could not import module {module_name}: there is no such module"
    return f"Could not import module {module_name}: it needs the missing module '{missing}'"
