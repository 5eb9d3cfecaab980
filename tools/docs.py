"""Write what follows from the code: settings tables of READMEs, what deploying requires of each stage, the picture of
imports. `make docs`.
"""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from pipelines.lines.all_lines import LINES
from pipelines.lines.line import Stage
from qinglan.errors import ConfigError
from qinglan.lineage.auditing.deploy_gate import REQUIRED_FILE
from qinglan.reward.config import RewardConfig
from qinglan.terminal import say
from tools.imports_picture import PICTURE, picture

ROOT = Path(__file__).parent.parent
REQUIRED_HEAD = """\
# The stages that a model must have come through, by its name after the tenant's, and the inputs that each must name
# by digest; * stands for anything. Written by `make docs` from the stages' entries in pipelines/lines.
"""


def readmes() -> dict[Path, type[BaseModel]]:
    """The READMEs with a table of settings; a second stage of a folder has <stage>.md there."""
    stages = [stage for line in LINES.values() for stage in line.stages.values() if not stage.part]
    tables: dict[Path, type[BaseModel]] = {readme_path(stage): stage.config for stage in stages}
    return tables | {ROOT / "qinglan/reward/README.md": RewardConfig}


def readme_path(stage: Stage) -> Path:
    folder = ROOT.joinpath(*stage.folder.split("."))
    page = folder / f"{stage.name}.md"
    return page if page.exists() else folder / "README.md"


def required_inputs_text() -> str:
    """The deploy gate's table as the lines are now."""
    import yaml

    table = {name: dict(stages) for line in LINES.values() for name, stages in line.required.items()}
    return REQUIRED_HEAD + yaml.safe_dump(table, default_flow_style=None, sort_keys=False, width=110)


BETWEEN = re.compile(r"(<!-- settings -->\n).*?(<!-- /settings -->)", re.DOTALL)


def with_settings(text: str, model: type[BaseModel]) -> str:
    """The README's text with its table as the configuration is now."""
    if not BETWEEN.search(text):
        raise ConfigError(
            "A README of settings has the lines <!-- settings --> and <!-- /settings -->; the table goes between."
        )
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
    for path, model in readmes().items():
        try:
            text = with_settings(path.read_text(encoding="utf-8"), model)
        except ConfigError as error:
            raise SystemExit(f"{path.relative_to(ROOT)}: {error}") from error
        path.write_text(text, encoding="utf-8")
        say(path.relative_to(ROOT))
    REQUIRED_FILE.write_text(required_inputs_text(), encoding="utf-8")
    say(REQUIRED_FILE.relative_to(ROOT))
    PICTURE.write_text(picture(), encoding="utf-8")
    say(PICTURE.relative_to(ROOT))
