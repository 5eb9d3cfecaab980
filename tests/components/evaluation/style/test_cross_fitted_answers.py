"""The answers of cross-fitted models are read as a list of whole answers, or refused in words."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.style.probabilities import read_cross_fitted
from qinglan.errors import DataError
from qinglan.style.rows import CROSS_FITTED_FILE, StyleRow

ROW = StyleRow(id="r1", input="用户问题：怎么吃\n回答：一天一粒", label="温和")
ANSWER = {"id": "r1", "fold": 1, "temperature": 1.0, "probabilities": [0.6, 0.4], "question_alone": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (7, "Input should be a"),
        ({"answers": []}, "Input should be a"),
        (["r1"], "0: Input should be a mapping"),
        ([{**ANSWER, "fold": "first"}], "0.fold"),
        ([{**ANSWER, "fold": 2}], "row r1 was not judged by the model of its fold"),
    ],
)
def test_what_is_no_list_of_answers_is_refused_with_the_next_step(tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / CROSS_FITTED_FILE
    path.write_bytes(orjson.dumps(content))

    with pytest.raises(DataError, match=f"{path}: .*{reason}.*Train again"):
        read_cross_fitted(tmp_path, [ROW], [], {"r1": 1}, ["温和", "严厉"], [1.0])
