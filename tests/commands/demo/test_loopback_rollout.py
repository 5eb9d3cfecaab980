"""A demo after its gate has promoted: a stable model by override, a deploy, users, a rollout."""

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import orjson
import pytest

import tests.releases.whole_release as whole
from commands.demo.loopback_rollout import FOLDER, REASON, ROLLOUT_LOG, _questions, roll_out
from components.release.register.baseline import UNJUDGED, release_baseline
from components.release.register.config import RegisterConfig
from components.release.register.stage import Inputs
from pipelines.execute.rundir import RunDir
from pipelines.lines.config import load_config
from pipelines.lines.rewriter import LoopbackConfig
from qinglan.errors import DataError
from qinglan.files.digests import digest
from qinglan.files.files import dump_line
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.auditing.deploy_gate import may_deploy
from qinglan.lineage.release.release_address import parse_release_uri
from qinglan.lineage.signing.trust import TRUST_FILE, load_trust
from qinglan.rows.rows import Question
from qinglan.store import open_store
from standins.rollout_local.service import FileTarget
from standins.samples import write_sample
from standins.samples.conversations import fresh_turns
from tests.models.tiny_rewriter import taught_model
from tests.releases.registered_release import NAME, Json, judged, use_keys

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks_with_models")]

POLICY: Json = {
    "steps": [50, 100], "stepSeconds": 5, "minimumSample": 30, "deadlineSeconds": 200,
    "checks": [{"name": "errors", "margin": 0.1}],
}  # fmt: skip


class Ran:
    """A run's folder as its gate and register have left it, made of two models that were taught by heart."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.keys = use_keys(root / "keys", patch)
        self.outputs, self.run = root / "made", RunDir(root / "run")
        self.sft = taught_model(self.outputs / "sft_model")
        patch.setattr(whole, "judged", self._judged)
        self.released = whole.make_whole_release(self.outputs, self.keys, model=taught_model(root / "rl", seed=2))
        write_sample("fivedoctors", root / "data", conversations=60, seed=0)
        inputs = {name: root / "data" / file for name, file in INPUT_FILES.items()}
        self.config = load_config(
            "fivedoctors", "demo", **inputs, register={"store": str(root / "store")}
        ).model_copy(
            update={"loopback": LoopbackConfig(requests_a_second=8.0, rollout=POLICY)}
        )  # fmt: skip
        self._link()

    def _judged(self, model: Path) -> Json:
        """Beside the SFT model that this run really has."""
        result = judged(model)
        result["digests"]["models"]["sft"] = result["digests"]["parents"]["rl"]["sft_model"] = digest(self.sft)
        return result

    def _link(self) -> None:
        self.run.files.mkdir(parents=True)
        self.run.records.mkdir()
        for name in ("evaluation", "report", "sft_model", "release"):
            ending = {"evaluation": ".json", "report": ".html"}.get(name, "")
            (self.run.files / f"{name}{ending}").symlink_to(self.outputs / name)
        gate = {"status": "done", "lineage": str(self.released.inputs.lineage)}
        (self.run.records / "gate.json").write_bytes(orjson.dumps(gate))
        first = next(fresh_turns("fivedoctors", 0, 1_000_003))
        self.locked = Question(
            id="q1", tenant_id="fivedoctors", conversation_id="c1", question=first.question,
            user_profile=first.profile, history_summary=first.history,
        )  # fmt: skip
        (self.run.files / "locked_test.jsonl").write_bytes(dump_line(self.locked))
        store = open_store(self.config.register_.store).prepare()
        store.push(self.outputs / "release", self.released.registered.release)


INPUT_FILES = {"questions": "questions.xlsx", "knowledge_base": "knowledge_base.jsonl"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    with pytest.MonkeyPatch.context() as patch:
        yield Ran(tmp_path_factory.mktemp("ran"), patch)


def test_the_promoted_model_earns_all_users_from_one_that_serves_by_a_signed_override(
    ran: Ran, capfd: pytest.CaptureFixture[str]
) -> None:
    state = roll_out(ran.config, ran.run.root)
    output = capfd.readouterr().out

    assert state.outcome == "Promoted", state.reasons
    assert UNJUDGED in output and "by a signed override" in output
    folder = ran.run.root / FOLDER
    assert "the canary is given 50 %" in output and "within 10 points" not in output
    assert "within 10 points" in (folder / ROLLOUT_LOG).read_text(encoding="utf-8"), "figures are in the log"
    assert len(output.splitlines()) < 20
    assert " and got 0 errors" in output
    assert "Beside the release: rollout loopback/rewriter-1 to rewriter, Promoted " in output
    assert state.stable and state.stable.model == digest(ran.sft)
    [traffic] = FileTarget(ran.run.root / FOLDER).read().traffic.items()
    assert (parse_release_uri(traffic[0]).digest, traffic[1]) == (ran.released.registered.release, 100)


def test_every_later_audit_of_the_first_model_shows_the_override(ran: Ran) -> None:
    roll = state_uri(ran)
    audited = audit(
        parse_release_uri(roll).digest, load_trust(ran.keys / TRUST_FILE), store=ran.config.register_.store
    )

    assert [override.reason for override in audited.overrides] == [REASON]
    assert audited.verdict != "intact"


def state_uri(ran: Ran) -> str:
    """Return the address of the stable model from the rollout's own file."""
    rollout = orjson.loads((ran.run.root / FOLDER / "rollouts" / "rewriter-1.json").read_bytes())
    return str(rollout["status"]["stable"]["uri"])


def test_no_question_of_the_locked_test_is_asked(ran: Ran) -> None:
    requests = list(islice(_questions(ran.config, ran.run), 500))

    locked = (ran.locked.question, ran.locked.user_profile, ran.locked.history_summary)
    assert locked not in {
        (request["query"], request["user_profile"], request["history_summary"]) for request in requests
    }
    assert len({request["query"] for request in requests}) > 100


def test_a_release_that_nothing_judged_is_refused_without_its_override(ran: Ran, tmp_path: Path) -> None:
    inputs = ran.released.inputs._replace(model=ran.sft)
    created = release_baseline(inputs, tmp_path / "release", RegisterConfig(name=NAME), "sft")
    decision = may_deploy(tmp_path / "release", ran.released.policy, NAME)

    assert created.model == digest(ran.sft)
    assert not decision.allowed and not decision.grave
    assert any("the lineage holds no gate's verdict" in reason for reason in decision.reasons)


def test_a_baseline_of_other_bytes_than_were_measured_is_no_release(ran: Ran, tmp_path: Path) -> None:
    other = shutil.copytree(ran.sft, tmp_path / "other")
    (other / "rewriter.json").write_text((other / "rewriter.json").read_text() + " ")
    inputs = Inputs(*ran.released.inputs._replace(model=other))

    with pytest.raises(DataError, match="has digest"):
        release_baseline(inputs, tmp_path / "release", RegisterConfig(name=NAME), "sft")
    with pytest.raises(DataError, match="measured no 'bert'"):
        release_baseline(inputs, tmp_path / "release", RegisterConfig(name=NAME), "bert")
    assert not (tmp_path / "release").exists()
