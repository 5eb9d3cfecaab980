"""Settings of a release."""

from pydantic import Field

from qinglan.config import TENANT_MODEL, Config


class RegisterConfig(Config):
    """A release's name, and what its card says beside the evaluation's figures."""

    name: str = Field(pattern=TENANT_MODEL)
    """Tenant and model, such as fivedoctors/rewriter: what serving asks for."""

    store: str = ""
    """Store that keeps and names releases, s3://bucket/prefix or a folder; without one the release is its folder."""

    stand_in_teacher: bool = False
    """The run was taught by a stand-in; a run with `stand_ins.teacher` sets this itself."""

    allow_stand_in: bool = False
    """Release such a model all the same, as a demonstration does: it is for trying the machinery, and of no use."""

    licence: str = "Apache-2.0"
    """Licence of the base model and so of this one, by its SPDX id."""

    base: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)?)?$")
    """The base model's public name, such as Qwen/Qwen3-32B."""

    intended_use: str = ""
    """Intended use on the card, in place of the line's own text."""

    limits: tuple[str, ...] = ()
    """Known limits for the card, beside the line's own."""
