"""Section: base class of all sections. Null means default; unknown keys are kept."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import override


class Section(BaseModel):
    """One section. A null value means the default. Unknown keys are kept; the gateway warns about them.

    Attributes:
        passes_extra_keys: Whether unknown keys are arguments of the class in `use`, so that there is no warning.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    passes_extra_keys: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _null_means_default(cls, data: object) -> object:
        if data is None:
            return {}
        if not isinstance(data, dict):
            return data
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in cls.model_fields
        }

    @override
    def __repr_args__(self) -> Any:
        # Unknown keys may hold API keys and tokens, which must not appear in logs.
        known = type(self).model_fields
        return [(key, value) for key, value in super().__repr_args__() if key in known]

    def extra_keys(self) -> dict[str, Any]:
        """Return the unknown keys, which are arguments of the class in `use`."""
        return dict(self.model_extra or {})
