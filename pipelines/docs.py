"""Write what documents show of the code: settings tables of READMEs, and the picture of imports. `make docs`."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from components.data.convert.config import ConvertConfig
from components.data.generate.config import GenerateConfig
from components.data.style.config import PrepareStyleConfig
from components.data.validate.config import ValidateConfig
from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.style.config import EvaluateStyleConfig
from components.release.deploy.config import DeployConfig
from components.release.register.config import RegisterConfig
from components.training.base.config import BaseConfig
from components.training.ppo.config import PpoConfig
from components.training.sft.config import SftConfig
from components.training.style.config import DistilConfig, StyleConfig
from pipelines.imports_picture import PICTURE, picture
from qinglan.reward.config import RewardConfig
from qinglan.terminal import say

ROOT = Path(__file__).parent.parent
READMES: dict[Path, type[BaseModel]] = {
    ROOT / "components/data/generate/README.md": GenerateConfig,
    ROOT / "components/data/validate/README.md": ValidateConfig,
    ROOT / "components/data/convert/README.md": ConvertConfig,
    ROOT / "components/data/style/README.md": PrepareStyleConfig,
    ROOT / "components/training/base/README.md": BaseConfig,
    ROOT / "components/training/sft/README.md": SftConfig,
    ROOT / "components/training/ppo/README.md": PpoConfig,
    ROOT / "components/training/style/README.md": StyleConfig,
    ROOT / "components/training/style/distil.md": DistilConfig,
    ROOT / "components/evaluation/rewriter/README.md": EvaluateConfig,
    ROOT / "components/evaluation/style/README.md": EvaluateStyleConfig,
    ROOT / "components/release/register/README.md": RegisterConfig,
    ROOT / "components/release/deploy/README.md": DeployConfig,
    ROOT / "qinglan/reward/README.md": RewardConfig,
}
BETWEEN = re.compile(r"(<!-- settings -->\n).*?(<!-- /settings -->)", re.DOTALL)


def with_settings(text: str, model: type[BaseModel]) -> str:
    """The README's text with its table as the configuration is now."""
    return BETWEEN.sub(lambda match: match[1] + settings_table(model) + match[2], text)


def settings_table(model: type[BaseModel], prefix: str = "") -> str:
    header = "" if prefix else "| setting | default | what it does |\n|---|---|---|\n"
    return header + "".join(_rows(f"{prefix}{name}", field) for name, field in model.model_fields.items())


def _rows(name: str, field: Any) -> str:
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return settings_table(field.annotation, f"{name}.")
    default = "required" if field.default is PydanticUndefined else f"`{_json(field.default)}`"
    return f"| `{name}` | {default} | {' '.join((field.description or '').split())} |\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


if __name__ == "__main__":
    for path, model in READMES.items():
        path.write_text(with_settings(path.read_text(encoding="utf-8"), model), encoding="utf-8")
        say(path.relative_to(ROOT))
    PICTURE.write_text(picture(), encoding="utf-8")
    say(PICTURE.relative_to(ROOT))
