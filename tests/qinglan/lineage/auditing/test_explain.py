"""Why a release passed, and what changed since another, in words."""

import json
from pathlib import Path
from typing import Any

from qinglan.lineage.auditing.audit_targets import AuditTarget, release_target
from qinglan.lineage.auditing.explain import Change, diff_releases, explain_release, format_changes
from qinglan.lineage.trace.walk import Graph, walk
from tests.releases.lineage_release import add_sibling, code, evaluation_of, write_release
from tests.releases.lineage_world import Keys, output, paid_paper, source


def opened(folder: Path, keys: Keys) -> tuple[AuditTarget, Graph]:
    target = release_target(folder, ())
    return target, walk(target.starts, target.evidence, keys.policy, target.tenant, until=target.until)


def test_why_tells_data_answers_judges_gate_and_signers(keys: Keys, tmp_path: Path) -> None:
    explained = "\n".join(explain_release(*opened(write_release(tmp_path / "release", keys), keys)))

    assert "generate made rewrites" in explained
    assert "100 rows" in explained
    assert "generate: 10 answers, cost 0.5" in explained
    assert "in all 40 answers, cost 2" in explained
    assert "examiner: large" in explained
    assert "verdict: promote" in explained
    assert "RL minus teacher +7.8 points" in explained
    assert f"release: key {keys.releaser.id[:12]}" in explained


def test_an_answer_that_the_lists_of_several_folds_name_is_counted_once(keys: Keys, tmp_path: Path) -> None:
    """The folds ask one journal, so that each list repeats those of its stage before it."""

    def change(line: dict[str, dict[str, Any]]) -> None:
        add_sibling(line)
        for step, calls in (("sft", "ab"), ("sft-fold-1", "abc")):
            paper = paid_paper(dict.fromkeys(calls, b"answer")).decode()
            paid = source("journal", paper, answers=len(calls), cost=0.01 * len(calls))
            line[step].update(used=[*line[step]["used"], paid], calls=calls)

    explained = "\n".join(explain_release(*opened(write_release(tmp_path / "r", keys, change), keys)))

    assert "sft: 2 answers, cost 0.02" in explained and "sft: 1 answers, cost 0.01" in explained
    assert "in all 43 answers, cost 2.03" in explained


def test_a_sibling_of_another_fold_is_no_change_of_the_released_models_step(keys: Keys, tmp_path: Path) -> None:
    old = opened(write_release(tmp_path / "old", keys), keys)
    new = write_release(tmp_path / "new", keys, lambda line: add_sibling(line, config={"seed": 7}))

    changed = [change.name for change in diff_releases(old, opened(new, keys))]

    assert "sft.seed" not in changed and "sft made sft_model" not in changed


def test_diff_names_data_rows_parameters_code_metrics_and_keys(keys: Keys, tmp_path: Path) -> None:
    def change(line: dict[str, dict[str, Any]]) -> None:
        line["generate"]["made"] = [output("rewrites", "other", rows=120)]
        line["validate"]["used"][0] = output("rewrites", "other")
        line["generate"]["used"][-1] = code(dirty=True)
        line["ppo"]["config"] = {"seed": 2, "steps": 48}
        line["sft"]["used"].append(source("environment"))
        line["sft"]["key"] = keys.stranger

    old = opened(write_release(tmp_path / "old", keys), keys)
    folder = write_release(tmp_path / "new", keys, change)
    (folder / "evaluation.json").write_text(json.dumps(evaluation_of("m", 0.9)))

    result = diff_releases(old, opened(folder, keys))

    assert Change("parameter", "ppo.seed", "1", "2") in result
    by_name = {item.name: item for item in result}
    assert "100 rows" in by_name["generate made rewrites"].old
    assert "120 rows" in by_name["generate made rewrites"].new
    assert by_name["generate code"].new.endswith("with changes")
    assert by_name["sft environment"].old == "-"
    assert (by_name["top1"].old, by_name["top1"].new) == ("0.82 [0.8, 0.84]", "0.9 [0.88, 0.92]")
    assert by_name["sft"].new == keys.stranger.id[:12]
    assert "Parameters:" in format_changes(result)
    assert not any("ppo.steps" in item.name for item in result)
