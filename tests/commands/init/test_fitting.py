"""`qinglan init` writes a paid profile that its own doctor and plan accept: it fits the memory, and its budget covers
its plan."""

import json
from pathlib import Path
from typing import Literal

import pytest

from commands.init.fitting import MARGIN, Fitted, fitted_profile, memory_problem, needed_budget
from commands.init.profiles import Answers, DataSettings, paid_profile
from pipelines.checks.plan import make_plan
from pipelines.lines.config import load_config, with_own_files

ANSWERS = Answers("our shop", "gpt", "", "cpu", "en")
SHORT, LONG = 100, 6_000
"""Tokens of the longest prompt."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tenant's folder before its profiles are written; 3,000 questions cost more than the default budget."""
    rows = ({"question": f"how do I install plugin {at}", "session": f"s{at // 2}"} for at in range(3_000))
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    passage = {"id": "p1", "title": "plugins", "content": "Open the settings and press install."}
    (tmp_path / "knowledge_base.jsonl").write_text(json.dumps(passage) + "\n")
    for name in ("teacher", "student", "need", "judge"):
        (tmp_path / f"{name}.txt").write_text("Rewrite the question.")
    return tmp_path


def fit(folder: Path, answers: Answers, longest: int, chosen: bool) -> Fitted:
    data = DataSettings(
        questions="questions.jsonl", knowledge_base="knowledge_base.jsonl",
        columns={"conversation_id": "session"}, training_rows=2_400, seed=0, labelled=False, longest=longest,
    )  # fmt: skip
    return fitted_profile("acme", answers, data, folder, chosen)


def of_memory(monkeypatch: pytest.MonkeyPatch, gigabytes: float) -> None:
    monkeypatch.setattr("pipelines.checks.sizing.check.host_bytes", lambda: gigabytes * 1e9)


@pytest.mark.parametrize("teacher", ["gpt", "deepseek"])
@pytest.mark.parametrize(("rag", "own_rag"), [("", False), ("https://rag.example.com", True)])
def test_the_comments_of_a_paid_profile_say_whose_rag_service_retrieves(
    teacher: Literal["gpt", "deepseek"], rag: str, own_rag: bool
) -> None:
    data = DataSettings("q.csv", "kb.jsonl", {}, 500, 42, True, 100)
    profile = paid_profile("shop", ANSWERS._replace(teacher=teacher, rag=rag), data)

    assert ("your RAG service's" in profile) is own_rag
    assert "the company's own RAG" not in profile or own_rag
    assert ("stand_ins:\n  rag: true" in profile) is not own_rag


@pytest.mark.parametrize("questions", ["../../sh/x.csv", "./x.csv", "../shop/./x.csv", "x.csv"])
def test_a_path_of_a_profile_is_shown_without_detours(tmp_path: Path, questions: str) -> None:
    profile = tmp_path / "tenants" / "shop" / "gpt.yaml"
    profile.parent.mkdir(parents=True)
    path = with_own_files({"questions": questions}, profile)["questions"]

    assert ".." not in path and "/./" not in path
    assert Path(path).resolve() == (profile.parent / questions).resolve()


def test_a_path_through_a_link_stays_the_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "shop").symlink_to(tmp_path / "far" / "away")
    path = with_own_files({"questions": "../x.csv"}, tmp_path / "shop" / "gpt.yaml")["questions"]

    assert Path(path).resolve() == tmp_path / "far" / "x.csv"


@pytest.mark.parametrize(
    ("gigabytes", "longest", "training", "max_length", "note"),
    [
        (200.0, SHORT, "cpu", 1024, ""),
        (200.0, LONG, "cpu", 4096, ""),
        (25.3, SHORT, "cpu", 1024, ""),
        (25.3, LONG, "cpu", 1024, "1,024 tokens of a row"),
        (40.0, LONG, "cpu", 2048, "2,048 tokens of a row"),
        (12.0, SHORT, "laptop", 256, "does not fit this machine, so the paid profile trains a tiny model"),
        (12.0, LONG, "laptop", 1024, "does not fit this machine, so the paid profile trains a tiny model"),
    ],
)
def test_the_training_fits_the_machine_and_what_was_changed_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gigabytes: float, longest: int, training: str, max_length: int,
    note: str,
) -> None:  # fmt: skip
    of_memory(monkeypatch, gigabytes)

    fitted = fit(folder, ANSWERS, longest, chosen=False)

    (folder / "gpt.yaml").write_text(fitted.text)
    config = load_config("acme", str(folder / "gpt.yaml"))
    assert (config.training, fitted.answers.training, config.sft.max_length) == (training, training, max_length)
    assert memory_problem(config, folder) is None, "qinglan doctor accepts it"
    assert (note in " ".join(fitted.notes)) if note else (fitted.notes == [])


def test_a_training_that_a_person_chose_is_kept_and_told_to_be_too_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_memory(monkeypatch, 12.0)

    fitted = fit(folder, ANSWERS, SHORT, chosen=True)

    assert fitted.answers.training == "cpu" and "training: cpu" in fitted.text
    assert fitted.notes[0].startswith("This machine cannot run the paid profile. ")


def test_the_budget_covers_the_profiles_own_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_memory(monkeypatch, 200.0)

    (folder / "gpt.yaml").write_text(fit(folder, ANSWERS._replace(rag="http://rag:1"), SHORT, False).text)

    config = load_config("acme", str(folder / "gpt.yaml"))
    plan = make_plan(config)
    assert plan.cost > 50 and config.gateway.budget >= MARGIN * plan.cost
    assert not any("budget" in warning for warning in plan.warnings)
    assert config.gateway.rag.base_url == "http://rag:1", "the lines below gateway are all there"


@pytest.mark.parametrize(
    ("cost", "budget", "written"),
    [(0.0, 50, 0), (38.4, 50, 0), (38.5, 50, 60), (62.01, 50, 90), (72.34, 50, 100), (1000.0, 50, 1300)],
)
def test_a_budget_is_raised_to_a_round_number_above_the_cost(cost: float, budget: float, written: int) -> None:
    assert needed_budget(cost, budget) == written
