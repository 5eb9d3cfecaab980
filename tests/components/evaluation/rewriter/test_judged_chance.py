"""By labels, with a judge that errs in a tenth of its grades, the better student is promoted and no other."""

import pytest

from benchmarks.judged_chance import DRAWS, TEACHER, Skill, count_verdicts

pytestmark = pytest.mark.slow
ALPHA = 0.05


def test_an_equal_student_is_promoted_by_chance_alone_and_no_more_often_than_alpha() -> None:
    promoted, better = count_verdicts(DRAWS, Skill(teacher=TEACHER, rl=0.7))

    assert better <= ALPHA * DRAWS, "by itself, too: the limits on nDCG and recall do not make up for it"
    assert promoted <= better


def test_a_student_that_is_better_by_far_is_promoted_although_the_judge_errs() -> None:
    promoted, _ = count_verdicts(DRAWS // 4, Skill(teacher=TEACHER, rl=0.85))

    assert promoted >= 0.75 * (DRAWS // 4)
