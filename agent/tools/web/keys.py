"""The further keys of a `tools` entry that names a web tool."""

from pydantic import Field, ValidationError, field_validator

from agent.config import Section
from agent.errors import ObjectNotImportable


class WebKeys(Section):
    """What an operator may set of a web tool.

    Attributes:
        api_key: Of the service; secret.
        base_url: Where the service is; None = the public one.
        max_results: How many results a search gives.
        max_chars: How much of a page is given to the model, characters.
        max_bytes: How much of an answer is read, bytes, unpacked.
        timeout: How long one call may take, seconds.
        allow_private_hosts: Names, addresses or networks that may be fetched although they are not public.
    """

    api_key: str | None = Field(default=None, repr=False)
    base_url: str | None = Field(default=None, pattern=r"^https?://\S+$")
    max_results: int = Field(default=5, ge=1, le=20)
    max_chars: int = Field(default=4096, ge=100, le=200_000)
    max_bytes: int = Field(default=2_000_000, ge=1_000, le=50_000_000)
    timeout: float = Field(default=10.0, gt=0, le=300)
    allow_private_hosts: list[str] = Field(default_factory=list)

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: str | None) -> str | None:
        if key is not None and not (key.isascii() and key.isprintable()):
            raise ValueError("holds characters that no key has")
        return (key or "").strip() or None


def parse_web_keys(given: dict[str, object]) -> WebKeys:
    """Read the keys.

    Raises:
        ObjectNotImportable: A key is unknown or its value unusable; the text names it and quotes nothing.
    """
    unknown = sorted(set(given) - set(WebKeys.model_fields))
    if unknown:
        known = ", ".join(WebKeys.model_fields)
        raise ObjectNotImportable(f"a web tool has no key {unknown[0]!r}; there are: {known}")
    try:
        return WebKeys.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ObjectNotImportable(
            f"a web tool's key {name} cannot be used: {first['msg']}"
        ) from error
