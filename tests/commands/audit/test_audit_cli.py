"""`qinglan audit` as people run it: what it prints, and the code that it ends with."""

import json
import sys
from pathlib import Path

import pytest

from commands import cli
from qinglan.files.digests import digest
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import save_trust
from qinglan.store import open_store
from tests.releases.lineage_release import write_release
from tests.releases.lineage_world import Keys, make_keys, source, write_run

INTACT, ALTERED, INCOMPLETE = 0, 8, 9


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keys:
    keys = make_keys(tmp_path / "keys")
    save_trust(tmp_path / "keys" / "trust.yaml", keys.policy)
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "keys"))
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return keys


@pytest.fixture
def run(tmp_path: Path, keys: Keys) -> Path:
    return write_run(tmp_path / "runs" / "run", keys)


def qinglan(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["qinglan", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_an_intact_run_ends_with_zero_and_its_page_is_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qinglan(monkeypatch, "audit", run, "--page", tmp_path / "page.html") == INTACT

    assert "✓ sft_model" in capsys.readouterr().out
    assert "Intact" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_changed_run_ends_with_eight_and_an_incomplete_one_with_nine(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "artifacts/line-1/generate/rewrites").unlink()
    assert qinglan(monkeypatch, "audit", run) == INCOMPLETE
    assert "Name the folder of the missing files" in capsys.readouterr().err

    (run / "artifacts/line-1/sft/model/model.safetensors").write_bytes(b"x")
    assert qinglan(monkeypatch, "audit", run) == ALTERED


def test_bytes_alone_are_taken_where_asked(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "runs" / "questions.xlsx").rename(tmp_path / "elsewhere.xlsx")

    assert qinglan(monkeypatch, "audit", run) == INTACT
    assert qinglan(monkeypatch, "audit", run, "--bytes") == INCOMPLETE
    assert qinglan(monkeypatch, "audit", run, "--bytes", "--files", tmp_path / "elsewhere.xlsx") == INTACT


def test_json_is_all_that_stdout_gets(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qinglan(monkeypatch, "audit", run, "--json") == INTACT

    assert json.loads(capsys.readouterr().out)["verdict"] == "intact"


def test_another_policy_is_taken_by_trust(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nobody.yaml").write_text("keys: {}\n")

    assert qinglan(monkeypatch, "audit", run, "--trust", tmp_path / "nobody.yaml") == ALTERED
    assert qinglan(monkeypatch, "audit", run, "--trust", tmp_path / "none.yaml") == 2


def test_which_models_finds_the_descendants_of_a_file(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qinglan(monkeypatch, "audit", run.parent / "questions.xlsx", "--which-models", "--json") == 0

    hits = json.loads(capsys.readouterr().out)
    assert [(hit["what"], hit["fault"]) for hit in hits] == [("sft_model", ""), ("rewrites", "")]


@pytest.mark.slow
def test_why_and_diff_answer_in_words(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release, other = write_release(tmp_path / "one", keys), write_release(tmp_path / "other", keys, weights="others")
    monkeypatch.setattr("qinglan.lineage.auditing.audit.check_release", lambda *arguments: [])

    assert qinglan(monkeypatch, "audit", release, "--why") == 0
    assert "verdict: promote" in capsys.readouterr().out
    assert qinglan(monkeypatch, "audit", release, "--diff", other) == 0
    assert "ppo made rl_model" in capsys.readouterr().out
    assert qinglan(monkeypatch, "audit", release, "--why", "--diff", other) == 2
    (other / "report.html").write_text("changed")
    assert qinglan(monkeypatch, "audit", other, "--why") == ALTERED
    assert qinglan(monkeypatch, "audit", release, "--diff", other) == ALTERED


@pytest.mark.slow
def test_a_broken_glass_lies_beside_the_release_and_in_every_later_audit(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("qinglan.lineage.auditing.audit.check_release", lambda *arguments: [])
    store = open_store("runs/store")
    sound = write_release(tmp_path / "sound", keys)
    store.push(sound, digest(sound))
    assert qinglan(monkeypatch, "audit", digest(sound), "--break-glass", "the shop is down", "--by", "Mei") == 2
    assert "nothing to override" in capsys.readouterr().err

    release = write_release(
        tmp_path / "release", keys, change=lambda line: line["ppo"]["used"].remove(source("reward"))
    )
    name = digest(release)
    store.push(release, name)
    assert qinglan(monkeypatch, "audit", name, "--break-glass", "the shop is down", "--by", "Mei\x1b[2J") == 2
    assert qinglan(monkeypatch, "audit", name, "--break-glass", "short", "--by", "Mei") == 2
    assert qinglan(monkeypatch, "audit", name, "--break-glass", "the shop is down", "--by", "Mei") == 0
    assert "may be deployed, by Mei" in capsys.readouterr().out
    assert qinglan(monkeypatch, "audit", name) == INTACT
    assert "BREAK-GLASS" in capsys.readouterr().out

    (release / "report.html").write_text("changed")
    assert qinglan(monkeypatch, "audit", release, "--break-glass", "the shop is down", "--by", "Mei") == ALTERED
    assert len(store.notes(name)) == 1
