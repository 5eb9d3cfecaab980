"""Settings of a comparison: the candidate teachers, and the stand-in of each on a laptop."""

from collections import Counter
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import Field, model_validator

from pipelines.checks.preflight import raise_missing
from pipelines.checks.readiness import disallowed_hosts, missing_keys
from pipelines.lines.config import CONFIGS
from pipelines.lines.rewriter import RunConfig
from qinglan.config import Config, Fraction, Name, load_yaml
from qinglan.errors import ConfigError
from qinglan.files.files import sha256_text
from qinglan.llm.config import PaidModel
from standins.teacher.config import Skill

EXAMPLE = CONFIGS / "teachers.example.yaml"
FORM = (
    "  teachers:",
    "    - {name: gpt, model: {base_url: ..., model: ..., price: {...}}}",
    "    - {name: deepseek, model: {...}}",
)
"""The form of the file, for people whose file has another."""

READ_ONLY = {"price", "batch_price_factor", "typical_seconds", "strip_thinking", "refusal_patterns"}
"""Settings that do not change the request, only how its answer is priced and parsed, so the journal is reused."""


class StandIn(Skill):
    """Behaviour of the stand-in that replaces this teacher on a laptop; ignored when the real model is called."""

    seconds: float = Field(default=0.02, ge=0)
    """Seconds that an answer takes."""

    error_rate: Fraction = 0.0
    """Share of calls that get no answer."""


class TeacherChoice(Config):
    """A candidate teacher."""

    name: Name
    """Name in the report and of the journal."""

    model: PaidModel
    """The paid model, with the settings of a profile's `gateway.teacher`."""

    stand_in: StandIn = StandIn()
    """The stand-in, used if the profile sets `stand_ins: {teacher: true}`."""


class TeachersConfig(Config):
    """Candidate teachers, and how much worse a cheaper one may be."""

    teachers: tuple[TeacherChoice, ...] = Field(min_length=2)
    """Two or more candidates."""

    margin: Fraction = 0.03
    """Largest loss of quality that is accepted for a cheaper teacher; the original plan hopes for 3 points."""

    @model_validator(mode="after")
    def _one_name_each(self) -> Self:
        if twice := [name for name, count in Counter(teacher.name for teacher in self.teachers).items() if count > 1]:
            raise ValueError(f"the name {twice[0]!r} is given twice; each teacher needs its own")
        if "plain" in {teacher.name for teacher in self.teachers}:
            raise ValueError("the name 'plain' is the question's own, without a rewrite; choose another")
        return self


def load_teachers(path: Path) -> TeachersConfig:
    try:
        return TeachersConfig.parse(load_yaml(path), str(path))
    except ConfigError as error:
        raise ConfigError(*error.lines, f"The file has this form; {EXAMPLE} is a whole one:", *FORM) from error


def check_payable(config: RunConfig, teachers: TeachersConfig) -> None:
    """Check before any call that all prices have one currency, and paid models an allowed host and a key."""
    models = {teacher.name: teacher.model for teacher in teachers.teachers} | dict(config.gateway.models())
    currencies = {name: model.price.currency for name, model in models.items()}
    if len(set(currencies.values())) > 1:
        listed = ", ".join(f"{name} in {currency}" for name, currency in currencies.items())
        raise ConfigError(f"prices: {listed}. Costs are compared in one currency: convert them.")
    if config.pays:
        addresses = {f"{name}.base_url": model.base_url for name, model in models.items()}
        raise_missing([*disallowed_hosts(addresses), *missing_keys(models)])


def journal_name(choice: TeacherChoice, stands_in: bool) -> str:
    """Name a teacher's journal by the settings of its requests: a changed model or request gets a new journal."""
    request: dict[str, Any] = choice.model.model_dump(mode="json", exclude=READ_ONLY)
    request["batch"] = None  # models once had a setting of that name: journals of then keep their names
    if stands_in:
        request["stand_in"] = choice.stand_in.model_dump(mode="json")
    return f"{choice.name}-{sha256_text(orjson.dumps(request, option=orjson.OPT_SORT_KEYS).decode())[:12]}"
