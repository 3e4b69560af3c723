"""Configuration keys of the web tools in the `tools` section."""

from pydantic import Field, ValidationError, field_validator

from agent.config import Section
from agent.errors import ObjectNotImportable


class WebKeys(Section):
    """Configuration of a web tool.

    Attributes:
        api_key: Key of the service; secret.
        base_url: URL of the service; None = the public one.
        max_results: Maximum number of search results.
        max_chars: Maximum characters of a page per call; `offset` continues reading.
        max_bytes: Maximum size of a response, decompressed bytes.
        timeout: Time limit of one call, seconds.
        model_name: The `models` entry that answers questions about pages; None = the first.
        allow_private_hosts: Names, addresses or networks that may be fetched even if they are not public.
    """

    api_key: str | None = Field(default=None, repr=False)
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    max_results: int = Field(default=5, ge=1, le=20)
    max_chars: int = Field(default=2_000_000, ge=100, le=50_000_000)
    max_bytes: int = Field(default=2_000_000, ge=1_000, le=50_000_000)
    timeout: float = Field(default=10.0, gt=0, le=300)
    model_name: str | None = None
    allow_private_hosts: list[str] = Field(default_factory=list)

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: str | None) -> str | None:
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ValueError("contains characters that are not allowed in keys")
        return (key or "").strip() or None


def parse_web_keys(given: dict[str, object]) -> WebKeys:
    """Parse the keys.

    Raises:
        ObjectNotImportable: A key is unknown or has an invalid value. The message names the key and quotes no value.
    """
    unknown = sorted(set(given) - set(WebKeys.model_fields))
    if unknown:
        known = ", ".join(WebKeys.model_fields)
        raise ObjectNotImportable(f"a web tool has no key {unknown[0]!r}; available keys: {known}")
    try:
        return WebKeys.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ObjectNotImportable(
            f"a web tool's key {name} cannot be used: {first['msg']}"
        ) from error
