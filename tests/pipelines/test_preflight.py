"""What is refused before anything is paid: a machine without the GPUs, a sheet without rows to train on."""

from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.preflight import check_machine, check_questions
from qinglan.errors import ConfigError, DataError
from qinglan.tables import write_table


@pytest.mark.parametrize(("stages", "stage"), [(("convert", "sft"), "sft"), (("ppo",), "ppo")])
def test_gpus_that_are_not_here_are_missed_before_the_teacher_is_asked(
    stages: tuple[str, ...], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    config = load_config("fivedoctors", "gpt")

    with pytest.raises(ConfigError, match=f"settings of {stage} want 4 GPUs, .*--until convert"):
        check_machine(config, stages)
    check_machine(config, ("generate", "validate", "convert"))
    check_machine(load_config("fivedoctors", "demo"), stages)


@pytest.mark.parametrize(("split", "refused"), [("test", True), ("train", False), (None, False)])
def test_a_sheet_without_a_row_for_training_is_refused(tmp_path: Path, split: str | None, refused: bool) -> None:
    sheet = tmp_path / "questions.xlsx"
    with write_table(sheet, ["问题", "划分"]) as add:
        add(["一天吃几次?", split])
        add(["要放冰箱吗?", "dev"])
    config = load_config("fivedoctors", "demo", questions=sheet)

    if refused:
        with pytest.raises(DataError, match="no row is for training"):
            check_questions(config)
    else:
        assert check_questions(config) == {"fivedoctors"}
