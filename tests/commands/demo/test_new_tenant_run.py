"""From the sheet to a verdict as a user of a new tenant runs it, with the two settings that the guide shows.

The trainings are too short to learn much: the gate has to hold.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from commands.demo.held_release import REASON
from qinglan.config import load_yaml
from qinglan.files.digests import digest
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.signing.keys import keys_folder
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust
from qinglan.lineage.trace.evidence import RunFolder
from qinglan.lineage.trace.release_folder import read_release
from qinglan.rewriter.card import read_card
from qinglan.rewriter.model import Student
from qinglan.store import open_store
from tests.commands.demo.new_tenant_run import Ran, acme, guide_settings, qinglan
from tests.processes.forked_runs import fork_environment, swift_sockets, verl_socket
from tests.processes.forkserver import GATEWAY, forked

pytestmark = pytest.mark.slow


def with_forks() -> dict[str, str]:
    """The environment in which all of a run is forked, its trainings too."""
    return fork_environment(swift_sockets() | verl_socket())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The run's first half, up to its last training."""
    folder = tmp_path_factory.mktemp("thread")
    words = ["run", *acme(folder, guide_settings()), "--out", str(folder / "run")]
    run = qinglan([*words, "--until", "ppo"], folder / "run", with_forks())
    return run._replace(words=words)


@pytest.fixture(scope="module")
def ran(trained: Ran) -> Ran:
    """The same command to its end."""
    assert trained.code == 0, trained.errors
    return qinglan(trained.words, trained.out, with_forks())


def test_a_gate_that_holds_ends_the_run_with_its_reasons_and_its_own_exit_code(ran: Ran) -> None:
    assert ran.code == 7, ran.errors
    reasons = ran.record["verdict"]["reasons"]
    assert "The gate says hold" in ran.errors and not any(reason in ran.errors for reason in reasons)
    assert ran.record["verdict"]["word"] == "hold" and reasons
    assert not (ran.out / "files" / "release").exists()


def test_every_stage_before_the_gate_is_done_and_tied_to_the_one_before(ran: Ran) -> None:
    steps = ran.record["steps"]

    before = list(steps)[: list(steps).index("register")]
    assert [name for name, step in steps.items() if (step or {}).get("status") == "done"] == before
    outputs = {
        name: output["sha256"] for step in steps.values() if step for name, output in step.get("outputs", {}).items()
    }
    for step in ("sft", "ppo", "evaluate", "gate"):
        for name, used in steps[step]["inputs"].items():
            assert used["sha256"] == outputs[name]


def test_the_evaluation_is_about_the_models_and_the_test_of_this_run(ran: Ran) -> None:
    files = ran.out / "files"
    result = orjson.loads((files / "evaluation.json").read_bytes())

    assert result["digests"]["models"] == {"sft": digest(files / "sft_model"), "rl": digest(files / "rl_model")}
    assert result["digests"]["test"] == digest(files / "locked_test.jsonl")
    assert {"plain", "history", "teacher", "sft", "rl"} == set(result["systems"])
    assert {"rl_vs_teacher", "rl_vs_sft"} <= set(result["paired"])
    assert set(result["paired"]["rl_vs_teacher"]["tenants"]) == {"acme"}
    assert result["verdict"]["word"] == "hold"


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_models_and_the_same_figures(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole thread once more, with nothing to find done: no cache, another folder."""
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "cache"))
    words = [str(tmp_path / "run") if word == str(ran.out) else word for word in ran.words]
    assert qinglan([*words, "--until", "evaluate"], tmp_path / "run", with_forks()).code == 0

    first, again = (
        orjson.loads((out / "files" / "evaluation.json").read_bytes()) for out in (ran.out, tmp_path / "run")
    )
    assert again["digests"]["models"] == first["digests"]["models"]
    assert orjson.dumps(untimed(again)) == orjson.dumps(untimed(first))


TIMED = {"latency_p50", "latency_p95", "cost", "notes"}


def untimed(value: Any) -> Any:
    """Without what is measured with a clock."""
    if isinstance(value, dict):
        return {name: untimed(item) for name, item in value.items() if name not in TIMED}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def test_a_run_as_it_comes_is_not_held_for_a_leak_a_judge_or_a_parent(ran: Ran) -> None:
    result = orjson.loads((ran.out / "files" / "evaluation.json").read_bytes())

    assert {(part["same"], part["alike"]) for part in result["leaks"]["parts"].values()} == {(0, 0)}
    amiss = ("leak", "digests", "examiner", "compared with no rows", "another SFT model")
    assert not [reason for reason in result["verdict"]["reasons"] if any(word in reason for word in amiss)]


def test_the_trained_models_are_whole_and_know_their_parents(ran: Ran) -> None:
    files = ran.out / "files"
    sft, rl = read_card(files / "sft_model"), read_card(files / "rl_model")

    assert sft.parents["base_model"] == digest(files / "base_model")
    assert digest(files / "sft_model") in rl.parents.values()
    prompt = guide_settings()["convert"]["system_prompt"]
    assert sft.system_prompts == rl.system_prompts == {"acme": prompt}
    assert digest(files / "sft_model") != digest(files / "rl_model")
    assert Student.load(files / "rl_model").tokenizer("虾青素").input_ids


def test_trained_and_paid_steps_are_neither_trained_nor_paid_again(trained: Ran, ran: Ran) -> None:
    for stage in ("sft", "ppo"):
        assert [run.record["steps"][stage]["facts"]["reused"] for run in (trained, ran)] == [0, 1]
    assert ran.record["steps"]["base"]["facts"]["cached"] == 1
    first, then = (
        {entry["step"]: entry["attempts"] for entry in run.record["gateway"]["by_step"]} for run in (trained, ran)
    )
    assert first["generate"] > 0 and {step: then[step] for step in first} == first


class Shown(NamedTuple):
    """A demo whose gate held."""

    out: Path
    code: int
    text: str
    errors: str

    @property
    def root(self) -> Path:
        return self.out / "fivedoctors"

    @property
    def store(self) -> str:
        return str(load_yaml(self.root / "config.yaml")["register"]["store"])


@pytest.fixture(scope="module")
def shown(ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """`qinglan demo` on the run whose gate held."""
    out = tmp_path_factory.mktemp("demo")
    shutil.copytree(ran.out, out / "fivedoctors", symlinks=True)
    return demo("demo", out, "--conversations", "8")


def demo(command: str, out: Path, *more: str) -> Shown:
    words = forked("tests.commands.demo.held_demo", command, "--out", str(out), *more, libraries=GATEWAY)
    run = subprocess.run(words, capture_output=True, text=True, timeout=1200, check=False, env=with_forks())
    return Shown(out, run.returncode, run.stdout, run.stderr)


def test_a_demo_whose_gate_holds_says_why_and_goes_on_to_its_end(ran: Ran, shown: Shown) -> None:
    reasons = ran.record["verdict"]["reasons"]

    assert shown.code == 0, shown.errors + shown.text
    assert "The gate holds. Only because this is a demo, a signed override" in shown.text
    assert "The rollout ended RolledBack: " in shown.text
    audited = shown.text.partition("The rollout ended RolledBack")[2]
    assert " incomplete: " in audited and "What is missing is what the signed override names" in audited
    words = " ".join(shown.text.split())  # a narrow screen breaks lines
    assert words.count(" ".join(reasons[0].split())) == 1, "once, on the screen at the end"
    assert len(shown.text.splitlines()) < 100


def test_the_release_of_a_held_model_says_hold_and_no_name_points_to_it(ran: Ran, shown: Shown) -> None:
    release = read_release(shown.root / "files" / "release")

    assert release.statement.facts == {"verdict": "hold", "reasons": ran.record["verdict"]["reasons"]}
    assert digest(shown.root / "files" / "release" / "model") == digest(ran.out / "files" / "rl_model")
    assert open_store(shown.store).prepare().name(release.name) is None


def test_a_held_release_serves_by_its_override_alone_which_later_audits_list(ran: Ran, shown: Shown) -> None:
    policy, folder = load_trust(keys_folder() / TRUST_FILE), shown.root / "files" / "release"
    release = read_release(folder)
    decision = may_deploy(folder, policy, release.name, [RunFolder(shown.root)])
    later = audit(release.digest, policy, store=shown.store)

    assert (decision.allowed, decision.grave) == (False, False)
    assert "the gate says hold" in decision.reasons
    assert [override.reason for override in later.overrides] == [
        f"{REASON} {' '.join(ran.record['verdict']['reasons'])}"
    ]
    assert later.verdict == "incomplete" and [finding.what for finding in later.findings] == ["verdict"]
    assert [rollout.statement.outcome for rollout in later.rollouts] == ["RolledBack"]


def test_after_such_a_demo_its_audit_refuses_a_changed_ancestor_and_its_rollout_runs_again(shown: Shown) -> None:
    tampered = demo("demo-audit", shown.out)
    again = demo("demo-rollout", shown.out)

    assert tampered.code == 0, tampered.errors
    assert "altered validated" in tampered.text and "May acme/rewriter be deployed? No:" in tampered.text
    assert again.code == 0, again.errors
    assert "The rollout ended RolledBack: " in again.text
