"""Settings of a release."""

from pydantic import Field

from qinglan.config import TENANT_MODEL, Config


class RegisterConfig(Config):
    """Name of a release, and texts of its model card."""

    name: str = Field(pattern=TENANT_MODEL)
    """Name of the release as tenant/model, such as fivedoctors/rewriter. Serving finds the release by it."""

    store: str = ""
    """Store of releases: s3://bucket/prefix or a folder. If empty, the release is only an output of the step."""

    stand_in_teacher: bool = False
    """True if a stand-in was the model's teacher. A run with `stand_ins.teacher` sets it."""

    allow_stand_in: bool = False
    """Permission to release a model that a stand-in taught, which is useful only for a demonstration."""

    licence: str = "Apache-2.0"
    """SPDX id of the licence of the base model, which this model has too."""

    base: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)?)?$")
    """Public name of the base model, such as Qwen/Qwen3-32B."""

    intended_use: str = ""
    """Intended use on the model card; if empty, the text of the model line is used."""

    limits: tuple[str, ...] = ()
    """Known limits on the model card, in addition to those of the model line."""
