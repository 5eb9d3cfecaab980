"""Settings of a release."""

from pydantic import Field

from qinglan.config import TENANT_MODEL, Config


class RegisterConfig(Config):
    """Name of a release, and texts of its model card."""

    name: str = Field(pattern=TENANT_MODEL)
    """Tenant and model, such as fivedoctors/rewriter, by which serving finds the release."""

    store: str = ""
    """Store of releases, s3://bucket/prefix or a folder; without a store the release is only the step's output."""

    stand_in_teacher: bool = False
    """True if a stand-in taught the model; a run with `stand_ins.teacher` sets it."""

    allow_stand_in: bool = False
    """Permission to release such a model, which is useful only for a demonstration."""

    licence: str = "Apache-2.0"
    """SPDX id of the licence of the base model, and so of this model."""

    base: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)?)?$")
    """Public name of the base model, such as Qwen/Qwen3-32B."""

    intended_use: str = ""
    """Intended use on the card; empty takes the line's text."""

    limits: tuple[str, ...] = ()
    """Known limits on the card, in addition to the line's."""
