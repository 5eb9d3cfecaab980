"""Settings of `qinglan compare-teachers`: the candidate teachers, and the stand-in that plays each one in a trial."""

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


class TeacherChoice(Config):
    """A candidate teacher."""

    name: Name
    """Name of the teacher in the report, and of its run's folder."""

    model: PaidModel
    """Settings of the paid model, with the fields of a profile's `gateway.teacher`."""

    stand_in: Skill = Skill()
    """Skill of the stand-in that plays this teacher if the profile sets `stand_ins: {teacher: true}`."""


class TeachersConfig(Config):
    """Candidate teachers, and how much worse a cheaper one may be."""

    teachers: tuple[TeacherChoice, ...] = Field(min_length=2)
    """Two or more candidates."""

    margin: Fraction = 0.03
    """Largest loss of the deciding metric that is accepted for a cheaper teacher, as a fraction: 0.03 is 3 points."""

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
        raise ConfigError(*error.lines, f"{EXAMPLE} is an example of such a file.") from error
