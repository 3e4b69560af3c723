"""The `voice` section of the configuration."""

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

DEFAULT_MODEL = "whisper-1"

LANGUAGE = r"^[a-z]{2,3}$"
"""Language codes of the endpoint: ISO 639-1, or ISO 639-3 where the former has none (haw, yue)."""


class VoiceConfig(BaseModel):
    """The `voice` section: how to transcribe speech if the platform does not do it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    base_url: str | None = Field(
        default=None,
        description="an OpenAI-compatible API, as far as /v1: Parley calls /audio/transcriptions below it",
    )
    api_key: str | None = Field(default=None, description="sent as bearer token")
    model: str = Field(default=DEFAULT_MODEL, min_length=1, description="the endpoint's model")
    local_model: str | None = Field(
        default=None,
        min_length=1,
        description="a model of faster-whisper, by name or folder; needs the extra `voice`",
    )
    language: str | None = Field(
        default=None, pattern=LANGUAGE, description="language of all speech; null = recognized"
    )
    max_seconds: int = Field(default=600, ge=1, description="longest recording to transcribe")
    max_bytes: int = Field(
        default=25_000_000, ge=1, description="largest recording to transcribe; OpenAI takes 25 MB"
    )
    show_transcript: bool = Field(
        default=True, description="whether people see in small type what was understood"
    )

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return url.rstrip("/") if url else None

    @model_validator(mode="after")
    def _check_one_engine(self) -> "VoiceConfig":
        if self.base_url and self.local_model:
            raise ValueError("set base_url or local_model, not both")
        return self
