"""Settings of a comparison: the candidate teachers, and the stand-in of each on a laptop."""

from collections import Counter
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from pipelines.lines.config import CONFIGS
from qinglan.config import Config, Fraction, Name, load_yaml
from qinglan.errors import ConfigError
from qinglan.llm.config import PaidModel
from standins.teacher.config import Skill

EXAMPLE = CONFIGS / "teachers.example.yaml"
FORM = (
    "  teachers:",
    "    - {name: gpt, model: {base_url: ..., model: ..., price: {...}}}",
    "    - {name: deepseek, model: {...}}",
)
"""The form of the file, for people whose file has another."""


class TeacherChoice(Config):
    """A candidate teacher."""

    name: Name
    """Name in the report and of the run's folder."""

    model: PaidModel
    """The paid model, with the settings of a profile's `gateway.teacher`."""

    stand_in: Skill = Skill()
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
