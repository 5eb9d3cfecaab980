"""No profile can set a gate laxer than the limits; an organisation's own limits are stricter; no impossible figure
promotes."""

import math
from pathlib import Path
from typing import Any

import pytest

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.style.config import EvaluateStyleConfig
from qinglan.errors import ConfigError
from qinglan.evaluation.gates import rewriter_gate, style_gate
from qinglan.evaluation.gates.gate_limits import Limits, RewriterLimits, StyleLimits, limit_faults, tightened
from qinglan.evaluation.gates.kinds import REWRITER, STYLE, Kind
from qinglan.lineage.signing.trust import TRUST_FILE, TrustPolicy, load_trust, save_trust
from tests.qinglan.evaluation.gates import test_rewriter_gate as rewriter
from tests.qinglan.evaluation.gates import test_style_gate as style

Json = dict[str, Any]
CONFIGS: dict[Kind, type[Any]] = {REWRITER: EvaluateConfig, STYLE: EvaluateStyleConfig}
GOOD = {REWRITER: rewriter.good, STYLE: style.good}

LAX: list[tuple[Kind, str, float, str]] = [
    (REWRITER, "draws", 999, "at least 1,000 is required"), (REWRITER, "gate.rows", 29, "at least 30 is required"),
    (REWRITER, "gate.cross_rows", 29, "at least 30"), (REWRITER, "gate.p", 0.0501, "at most 0.05 is allowed"),
    (REWRITER, "gate.margin", 0.031, "at most 0.03"), (REWRITER, "gate.kind_margin", 0.051, "at most 0.05"),
    (REWRITER, "gate.length_ratio", 3.01, "at most 3"), (REWRITER, "gate.copied", 0.11, "at most 0.1"),
    (REWRITER, "gate.invented", 0.051, "at most 0.05"), (REWRITER, "gate.zero_hit", 0.051, "at most 0.05"),
    (REWRITER, "gate.alike", 0.91, "at most 0.9"), (REWRITER, "gate.cost_ratio", 1e9, "at most 10"),
    (STYLE, "draws", 999, "at least 1,000"), (STYLE, "alike", 0.91, "at most 0.9"),
    (STYLE, "gate.rows", 29, "at least 30"), (STYLE, "gate.cross_rows", 19, "at least 20"),
    (STYLE, "gate.class_rows", 4, "at least 5"), (STYLE, "gate.p", 1.0, "at most 0.05"),
    (STYLE, "gate.class_margin", 0.11, "at most 0.1"), (STYLE, "gate.teacher_margin", 0.051, "at most 0.05"),
    (STYLE, "gate.alike", 0.91, "at most 0.9"), (STYLE, "gate.ece", 0.151, "at most 0.15"),
    (STYLE, "gate.ece_worse", 0.051, "at most 0.05"),
]  # fmt: skip
"""A setting of each line beyond its limit, and the limit."""

UNMET: list[tuple[Kind, str, float]] = [
    (REWRITER, "gate.p", 0), (REWRITER, "gate.p", 1e-400), (REWRITER, "gate.p", 1 / 10_001),
    (REWRITER, "gate.length_ratio", 0.01), (REWRITER, "gate.alike", 1e-9), (REWRITER, "gate.cost_ratio", 1e-12),
    (STYLE, "gate.p", 0), (STYLE, "gate.alike", 0.05), (STYLE, "alike", 1e-9), (STYLE, "gate.ece", 0),
]  # fmt: skip
"""A setting that no model can meet: p is at least 1 / (1 + draws)."""


def nested(path: str, value: Any) -> Json:
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


@pytest.mark.parametrize(("kind", "path", "value", "limit"), LAX)
def test_a_profile_with_a_lax_gate_is_refused_and_the_gate_holds(
    kind: Kind, path: str, value: float, limit: str
) -> None:
    with pytest.raises(ConfigError, match="No profile can exceed these limits") as refused:
        CONFIGS[kind].parse(nested(path, value), "mine.yaml")
    assert path in str(refused.value) and limit in str(refused.value)

    settings = nested(path, value)
    gate = kind.gate.parse(settings.get("gate", {}), "gate")
    held = kind.decide(GOOD[kind]() | {"settings": {"draws": 10_000, **settings}}, gate)

    assert not held.promote and held.reasons[0].startswith(f"Beyond the limits on every gate: {path} ")
    assert limit in held.reasons[0]


@pytest.mark.parametrize(("kind", "path", "value"), UNMET)
def test_a_profile_whose_gate_no_model_can_meet_is_refused(kind: Kind, path: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{path} is set to .* is needed.*No model can meet this"):
        CONFIGS[kind].parse(nested(path, value), "mine.yaml")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("gate.p", 0.0001), ("gate.length_ratio", 0.1), ("gate.alike", 0.1), ("gate.cost_ratio", 0.001),
        ("gate.margin", 0), ("gate.kind_margin", 0), ("gate.copied", 0), ("gate.invented", 0), ("gate.zero_hit", 0),
    ],
)  # fmt: skip
def test_a_strict_gate_that_a_model_can_meet_is_accepted(path: str, value: float) -> None:
    EvaluateConfig.parse(nested(path, value), "mine.yaml")


def test_the_profile_of_the_attack_is_refused_with_every_setting_named() -> None:
    """`draws: 1, gate: {p: 1, rows: 1, ...}` promoted a model that won 12 and lost 20 of 200 queries."""
    settings = {"p": 1, "rows": 1, "margin": 1, "kind_margin": 1, "invented": 1, "copied": 1, "alike": 1}

    with pytest.raises(ConfigError) as refused:
        EvaluateConfig.parse({"draws": 1, "gate": settings}, "mine.yaml: evaluate")

    assert all(name in str(refused.value) for name in ("draws", *(f"gate.{name}" for name in settings)))


@pytest.mark.parametrize("limits", [RewriterLimits(), StyleLimits()], ids=["rewriter", "style"])
def test_the_defaults_and_the_limits_themselves_are_within_the_limits(limits: Any) -> None:
    defaults = (EvaluateConfig() if isinstance(limits, RewriterLimits) else EvaluateStyleConfig()).model_dump()

    assert list(limit_faults(defaults, limits)) == list(limit_faults(limits.model_dump(), limits)) == []
    assert tightened(defaults, limits) == defaults
    assert set(defaults["gate"]) - {"by"} == set(limits.model_dump()["gate"]) - {"by"}, "every setting has a limit"


@pytest.mark.parametrize("value", ["1", None, True, math.nan, math.inf, [], {}])
def test_a_recorded_number_of_draws_that_is_none_never_promotes(value: Any) -> None:
    verdict = rewriter_gate.decide(rewriter.good() | {"settings": {"draws": value}}, rewriter.GATE)

    assert verdict.promote is (value is None), "an evaluation from before draws were limited may not record them"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"draws": 20_000}, "Beyond the limits on every gate: draws is set to 10000: at least 20,000 is required."),
        ({"gate": {"rows": 2_000}}, "Too few: 1000 queries with gold passages were compared, and 2000 are wanted."),
        ({"gate": {"p": 0.0005}}, "Better than the teacher: not shown."),
        ({"gate": {"length_ratio": 1.01}}, "over 1.01 times"),
        ({"gate": {"cost_ratio": 0.1}}, "over 0.1 times"),
        ({"gate": {"alike": 0.7}}, "looked for from 0.8 on only; 0.7 is wanted"),
    ],
)
def test_an_organisations_limits_hold_what_the_profiles_gate_promotes(limits: Json, reason: str) -> None:
    evaluation = rewriter.good() | {"settings": {"draws": 10_000, "gate": {}}}
    organisation = Limits.parse({"rewriter": limits}, "trust.yaml: evaluate")

    assert REWRITER.verdict(evaluation, "evaluation.json").promote
    held = REWRITER.strict_verdict(evaluation, "evaluation.json", organisation)

    assert not held.promote and any(reason in line for line in held.reasons), held.reasons


def test_an_organisation_can_demand_gold() -> None:
    evaluation = rewriter.judged_evaluation() | {"settings": {"gate": {"by": "labels"}}}
    by_gold = Limits.parse({"rewriter": {"gate": {"by": "gold"}}}, "trust.yaml: evaluate")

    assert REWRITER.verdict(evaluation, "evaluation.json").promote
    assert not REWRITER.strict_verdict(evaluation, "evaluation.json", by_gold).promote
    assert REWRITER.strict_verdict(evaluation, "evaluation.json", Limits()).promote


STRICT = {
    "rewriter": {"draws": 20_000, "gate": {"rows": 2_000, "p": 0.0005, "by": "gold"}},
    "style": {"gate": {"rows": 500}},
}


def test_an_organisations_limits_hold_a_style_model_too() -> None:
    evaluation = style.good() | {"settings": {"draws": 10_000, "alike": 0.8, "gate": {}}}

    assert STYLE.strict_verdict(evaluation, "evaluation.json", Limits()).promote
    [reason] = STYLE.strict_verdict(evaluation, "evaluation.json", Limits.parse(STRICT, "x")).reasons
    assert reason == "Too few: the test has 400 rows, and 500 are wanted."


@pytest.mark.parametrize(
    "limits",
    [
        {"rewriter": {"gate": {"p": 0.06}}}, {"rewriter": {"gate": {"rows": 29}}}, {"rewriter": {"draws": 10}},
        {"rewriter": {"gate": {"invented": -0.1}}}, {"rewriter": {"gate": {"p": 0}}},
        {"rewriter": {"gate": {"p": "nan"}}}, {"rewriter": {"gate": {"by": "anyone"}}},
        {"rewriter": {"gate": {"row": 400}}}, {"style": {"gate": {"ece": 0.5}}}, {"styles": {}}, {"rewriter": None},
    ],
)  # fmt: skip
def test_a_trust_policy_with_a_limit_laxer_than_the_projects_is_refused(limits: Json) -> None:
    with pytest.raises(ConfigError, match="evaluate"):
        TrustPolicy.parse({"evaluate": limits}, "trust.yaml")


def test_limits_remain_in_a_trust_policy_that_is_written_again(tmp_path: Path) -> None:
    """Making, rotating and revoking keys writes the file again."""
    policy = TrustPolicy.parse({"evaluate": STRICT}, TRUST_FILE)
    save_trust(tmp_path / TRUST_FILE, policy)
    assert load_trust(tmp_path / TRUST_FILE) == policy

    save_trust(tmp_path / TRUST_FILE, TrustPolicy())
    assert "evaluate" not in (tmp_path / TRUST_FILE).read_text()


IMPOSSIBLE: list[tuple[str, Any]] = [
    ("systems.rl.cost.value", -5), ("systems.teacher.cost.value", -0.01), ("systems.rl.length.value", -1),
    ("systems.teacher.length.value", -14), ("systems.rl.copied.value", -1), ("systems.rl.copied.value", -1e-9),
    ("systems.rl.invented.value", -1), ("systems.rl.invented.value", 1.01), ("systems.rl.zero_hit.value", -0.5),
    ("systems.teacher.zero_hit.value", 2), ("systems.teacher.zero_hit.value", math.inf),
    ("paired.rl_vs_teacher.p", -1), ("paired.rl_vs_teacher.p", 0), ("paired.rl_vs_teacher.p", -math.inf),
    ("paired.rl_vs_teacher.p", math.nan), ("paired.rl_vs_teacher.p", False), ("paired.rl_vs_teacher.n", -1000),
    ("paired.rl_vs_teacher.n", math.inf), ("paired.rl_vs_teacher.low", 1.5), ("paired.rl_vs_teacher.low", 0.5),
    ("paired.rl_vs_teacher.high", 7), ("paired.rl_vs_teacher.difference", 60),
    ("paired.rl_vs_teacher.difference", -1),
    ("paired.rl_vs_plain.low", 12), ("paired.rl_vs_plain.high", math.nan), ("paired.rl_vs_plain.difference", None),
    ("paired.rl_vs_teacher.ndcg.low", 3), ("paired.rl_vs_teacher.recall.low", math.nan),
    ("paired.rl_vs_teacher.tenants.chengla.ndcg.low", 1.0001), ("kinds.complete.difference.low", -2),
    ("leaks.threshold", -0.8), ("leaks.threshold", math.nan), ("leaks.parts.sft.rows", -1),
    ("leaks.parts.sft.same", -3), ("leaks.parts.ppo.alike", -1), ("counts.examined", -1),
]  # fmt: skip
IMPOSSIBLE_STYLE: list[tuple[str, Any]] = [
    ("counts.rows", -400), ("systems.model.classes.售前.support", -10), ("systems.model.classes.售前.f1.value", 1.2),
    ("systems.baseline.classes.售前.f1.value", -0.5), ("systems.model.ece.value", -0.01),
    ("systems.before.ece.value", 3.0), ("systems.model.macro_f1.value", 1.1),
    ("paired.model_vs_baseline.macro_f1.p", -1), ("paired.model_vs_baseline.macro_f1.p", 0.0),
    ("paired.model_vs_baseline.macro_f1.low", 0.2), ("paired.model_vs_baseline.macro_f1.high", 9),
    ("paired.model_vs_baseline.macro_f1.difference", 0), ("leaks.parts.train.rows", -1),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), IMPOSSIBLE, ids=[f"{path}={value}" for path, value in IMPOSSIBLE])
def test_an_impossible_figure_never_promotes_a_rewriter(path: str, value: Any) -> None:
    assert not rewriter_gate.decide(rewriter.changed(path, value), rewriter.GATE).promote


@pytest.mark.parametrize(("path", "value"), IMPOSSIBLE_STYLE)
def test_an_impossible_figure_never_promotes_a_style_model(path: str, value: Any) -> None:
    assert not style_gate.decide(style.changed(path, value), style.GATE).promote
