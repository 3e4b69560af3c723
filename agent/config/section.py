"""Section: base class of all sections. Null means default; unknown keys are kept."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import override


class Section(BaseModel):
    """One section. A key whose value is null means its default; unknown keys are kept, the gateway warns of them.

    Attributes:
        passes_extra_keys: Whether unknown keys are meant for the class that `use` names: no warning then.
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
        # Unknown keys hold what classes are given, keys and tokens among them: never in a log.
        known = type(self).model_fields
        return [(key, value) for key, value in super().__repr_args__() if key in known]

    def extra_keys(self) -> dict[str, Any]:
        """Return the keys that this section does not know, for the class that `use` names."""
        return dict(self.model_extra or {})
