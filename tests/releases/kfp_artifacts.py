"""A KFP artifact as a component gets it, as far as a record reads it."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class File:
    path: str
    metadata: dict[str, Any] = field(default_factory=dict)
    schema_title: str = "system.Dataset"

    @property
    def uri(self) -> str:
        return self.path
