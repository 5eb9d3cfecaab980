"""What a release can be told of itself."""

from pydantic import Field

from qinglan.config import TENANT_MODEL, Config


class RegisterConfig(Config):
    """A release's name, and what its card says beside the evaluation's figures."""

    name: str = Field(pattern=TENANT_MODEL)
    """Tenant and model, such as fivedoctors/rewriter: what serving asks for."""

    store: str = ""
    """Where releases are kept and named, s3://bucket/prefix or a folder; without one the release is its folder."""

    licence: str = "Apache-2.0"
    """Of the base model and so of this one, by its SPDX id."""

    base: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)?)?$")
    """The base model's public name, such as Qwen/Qwen3-32B."""

    intended_use: str = ""
    """For the card, in place of the line's own text."""

    limits: tuple[str, ...] = ()
    """Known limits for the card, beside the line's own."""
