"""Section: base class of all sections. Null means default; unknown keys are kept."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import override


class Section(BaseModel):
    """One section. A null value means the default. Unknown keys are kept, and the gateway reports them."""

    model_config = ConfigDict(extra="allow", frozen=True)

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

    @classmethod
    def passes_extra_keys(cls, _data: Mapping[str, Any], /) -> bool:
        """Return whether the unknown keys of a section are arguments of the class in `use`."""
        return False

    def extra_keys(self) -> dict[str, Any]:
        """Return the unknown keys, which are arguments of the class in `use`."""
        return dict(self.model_extra or {})
