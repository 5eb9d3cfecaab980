"""The teachers that are compared, and what stands in for each on a laptop."""

from collections import Counter
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import Field, model_validator

from pipelines.config import CONFIGS
from pipelines.rewriter import RunConfig
from qinglan.config import Config, Fraction, Name, load_yaml
from qinglan.errors import ConfigError
from qinglan.files import sha256_text
from qinglan.llm.config import PaidModel
from qinglan.llm.host_allowlist import check_host
from qinglan.llm.upstream import read_api_key
from standins.teacher.config import Skill

EXAMPLE = CONFIGS / "teachers.example.yaml"
READ_ONLY = {"price", "batch_price_factor", "typical_seconds", "strip_thinking", "refusal_patterns"}
"""Settings that change how answers are counted and read, not what is asked: the journal holds for them too."""


class StandIn(Skill):
    """The behaviour of a laptop's stand-in in this teacher's place. With the real one it says nothing."""

    seconds: float = Field(default=0.02, ge=0)
    """How long an answer takes."""

    error_rate: Fraction = 0.0
    """Share of calls that get no answer."""


class TeacherChoice(Config):
    """One candidate."""

    name: Name
    """Its name in the report, and that of its journal."""

    model: PaidModel
    """As a profile's `gateway.teacher`."""

    stand_in: StandIn = StandIn()
    """Used where the profile says `stand_ins: {teacher: true}`."""


class TeachersConfig(Config):
    """The candidates, and how much worse a cheaper one may be."""

    teachers: tuple[TeacherChoice, ...] = Field(min_length=2)
    """Two or more."""

    margin: Fraction = 0.03
    """By so much a cheaper teacher may at most be worse; the plan hopes for 3 points."""

    @model_validator(mode="after")
    def _one_name_each(self) -> Self:
        if twice := [name for name, count in Counter(teacher.name for teacher in self.teachers).items() if count > 1]:
            raise ValueError(f"the name {twice[0]!r} is given twice; each teacher needs its own")
        if "plain" in {teacher.name for teacher in self.teachers}:
            raise ValueError("the name 'plain' is the question's own, without a rewrite; choose another")
        return self


def load_teachers(path: Path) -> TeachersConfig:
    return TeachersConfig.parse(load_yaml(path), str(path))


def check_payable(config: RunConfig, teachers: TeachersConfig) -> None:
    """One currency, and where money is spent a host that may be reached and a key: before anything is sent."""
    models = {teacher.name: teacher.model for teacher in teachers.teachers} | dict(config.gateway.models())
    currencies = {name: model.price.currency for name, model in models.items()}
    if len(set(currencies.values())) > 1:
        listed = ", ".join(f"{name} in {currency}" for name, currency in currencies.items())
        raise ConfigError(f"prices: {listed}. Costs are compared in one currency: convert them.")
    if config.pays:
        for name, model in models.items():
            check_host(model.base_url, f"{name}.base_url")
            read_api_key(model, name)


def journal_name(choice: TeacherChoice, stands_in: bool) -> str:
    """The name of a teacher's journal: what is asked of another model, or otherwise, is another journal's."""
    request: dict[str, Any] = choice.model.model_dump(mode="json", exclude=READ_ONLY)
    request["batch"] = None  # models once had a setting of that name: journals of then keep their names
    if stands_in:
        request["stand_in"] = choice.stand_in.model_dump(mode="json")
    return f"{choice.name}-{sha256_text(orjson.dumps(request, option=orjson.OPT_SORT_KEYS).decode())[:12]}"
