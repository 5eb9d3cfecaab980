"""A run's configuration: defaults here and in the stages, differences in configs/<tenant>/<profile>.yaml.

The resolved whole is written beside every run as config.yaml.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from components.data.convert.config import ConvertConfig
from components.data.generate.config import GenerateConfig
from components.data.validate.config import ValidateConfig
from qinglan.config import Config, Name, load_yaml
from qinglan.errors import ConfigError
from qinglan.llm.config import GatewayConfig

CONFIGS = Path(__file__).parent / "configs"


class StandIns(Config):
    """What a laptop run starts on loopback in place of what it cannot reach."""

    teacher: bool = False
    """The stand-in teacher and judge, extractive, free of charge."""

    teacher_seconds: float = Field(default=0.0, ge=0)
    """How long the stand-in takes to answer."""

    rag: bool = False
    """This project's RAG service on the run's knowledge base."""


class RunConfig(Config):
    """Everything that one run of the rewriter's pipeline is told."""

    tenant_id: Name
    """The folder of the profile names it."""

    questions: Path | None = None
    """The spreadsheet or JSONL of questions; also `--questions`."""

    knowledge_base: Path | None = None
    """The JSONL that the RAG service serves, or a folder of <tenant>.jsonl; also `--knowledge-base`."""

    stand_ins: StandIns = StandIns()
    """What the laptop starts itself."""

    gateway: GatewayConfig
    """The paid models, the RAG service, limits and budget."""

    generate: GenerateConfig
    """The first stage."""

    validate_: ValidateConfig = Field(default=ValidateConfig(), alias="validate")
    """The second stage."""

    convert: ConvertConfig = ConvertConfig()
    """The third stage."""

    @model_validator(mode="before")
    @classmethod
    def _one_tenant(cls, values: Any) -> Any:
        """The tenant is written once; the stages get it from here."""
        if isinstance(values, dict) and "tenant_id" in values:
            generate = values.get("generate") or {}
            values = {**values, "generate": {"tenant_id": values["tenant_id"], **generate}}
        return values

    @property
    def pays(self) -> bool:
        """Whether a run spends money."""
        return not self.stand_ins.teacher


def profile_path(tenant: str, profile: str) -> Path:
    """The file of a profile, by name or by path; an unknown one is an error that lists those there are."""
    path = Path(profile) if profile.endswith(".yaml") else CONFIGS / tenant / f"{profile}.yaml"
    if not path.is_file():
        known = ", ".join(f"{p.parent.name}/{p.stem}" for p in sorted(CONFIGS.glob("*/*.yaml")))
        raise ConfigError(f"No profile {profile!r} for tenant {tenant!r}. There are: {known}.")
    return path


def load_config(tenant: str, profile: str, **given: Any) -> RunConfig:
    """A profile, with what the command line gave on top."""
    path = profile_path(tenant, profile)
    values = load_yaml(path)
    if values.setdefault("tenant_id", tenant) != tenant:
        raise ConfigError(f"{path}: is for tenant {values['tenant_id']!r}, and {tenant!r} was asked for.")
    values |= {name: value for name, value in given.items() if value is not None}
    return RunConfig.parse(values, str(path))


def dump_config(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration, every default spelled out."""
    import yaml

    from qinglan.files import replaced

    with replaced(path) as partial:
        text = yaml.safe_dump(config.model_dump(mode="json", by_alias=True), allow_unicode=True, sort_keys=False)
        partial.write_text(text, encoding="utf-8")
