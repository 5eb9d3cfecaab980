"""Gate of the rewriter: a pure function of evaluation.json and thresholds, which gives its reasons in words.

The candidate must find the gold passage first significantly more often than the teacher, must not lose in nDCG,
recall or a kind of question, and must stay within limits of cost, length, copies and invented numbers. No model may
have learned from the test, the examiner must be another model than the training's judge, and every input must be
named by its digest. The candidate is also held for a figure that is missing, impossible or not a number, and for a
setting laxer than its limit (gate_limits.py).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from statistics import NormalDist
from typing import Any, Literal

from pydantic import Field

from qinglan.config import Config, Fraction, Positive
from qinglan.evaluation.gates.gate_limits import RewriterLimits
from qinglan.evaluation.gates.leaks import leak_reasons
from qinglan.evaluation.gates.verdict import (
    Check,
    Comparison,
    EvaluationNumbers,
    Line,
    MissingNumberError,
    TooFew,
    Verdict,
    decide_line,
    describe_uses,
    level_of,
    missing_digests,
)
from qinglan.llm.providers.model_names import plain_model_name, same_model

PARENTS = {"sft": ("base_model", "train", "dev"), "rl": ("base_model", "sft_model", "train", "dev")}
"""Inputs of its training that a candidate's card must name by their digests."""

LEARNED_FROM = {"sft": ("sft",), "rl": ("sft", "ppo")}
"""Stages from whose training rows a candidate learned."""

OTHER_GATED_METRICS = {"ndcg": "nDCG@10", "recall": "recall@10"}
UNGATED_METRICS = {
    "quality": "quality by the examiner (1 to 5)",
    "judged_top1": "the first passage's score against the need",
}

BASELINES = (
    ("teacher_vs_plain", -1, "The teacher is worse than no rewrite"),
    ("history_vs_teacher", 1, "Question + history is better than the teacher"),
)
"""Pairs of systems, each with a sign and a sentence. If a pair's difference is significant and has this sign, every
verdict adds the sentence."""

CROSS_FITTED = "Cross-fitted"
"""First word of the gate's sentence about a sheet without a locked test."""

By = Literal["gold", "labels"]
FIRST_IN_WORDS = {"gold": "gold passage first", "labels": "right passage first, judged"}
LEAST_JUDGED = 0.95
"""Lowest share of a system's first passages, in rows without gold, that the examiner must have judged. The passages
that it did not judge could be right or wrong."""


class GateConfig(Config):
    """Limits that a candidate must meet before it may serve. A missing or malformed figure holds the candidate."""

    by: By = "gold"
    """Source of the right passage. `gold` counts only rows for which people named gold passages in the sheet.
    `labels` also counts rows without gold: the examiner grades each system's first passage, at one call for each
    different passage, and verdict, report and release say that figures are judged."""

    rows: Positive = 200
    """Lowest number of paired queries required. With 200, the standard error of a share is up to 3.5 points."""

    cross_rows: Positive = 50
    """Lowest number of queries required of a cross-fitted evaluation. Its wide intervals show how little a few
    queries prove."""

    p: Fraction = 0.05
    """Significance level. The permutation test's p of candidate against teacher must be lower than this level,
    divided by the number of models that the test has judged."""

    kind_margin: Fraction = 0.02
    """Highest loss of top-1 against the teacher allowed in each kind of question and for each tenant, as a share. A
    larger loss holds the model if it is significant after Holm's correction over all kinds and tenants. The report
    shows for each kind how large a loss its questions cannot exclude."""

    margin: Fraction = 0.01
    """Highest loss of nDCG@10 and of recall@10 against the teacher allowed overall and for each tenant, as a share.
    The lower end of the interval counts."""

    length_ratio: float = Field(default=1.5, gt=0)
    """Highest mean length of the rewrites allowed, as a multiple of the teacher's mean length."""

    copied: Fraction = 0.05
    """Highest allowed share of rewrites that copy the history or a passage."""

    invented: Fraction = 0.02
    """Highest allowed share of rewrites with a number that is neither in the question nor known of the user."""

    zero_hit: Fraction = 0.01
    """Highest allowed share of queries without a hit, in addition to the teacher's share."""

    alike: float = Field(default=0.8, gt=0, le=1)
    """Lowest similarity to a row of training or model selection at which a test row counts as leaked. It is the
    Jaccard similarity of the three-character pieces of question and history."""

    cost_ratio: float = Field(default=1.0, gt=0)
    """Highest allowed cost of 1,000 rewrites, as a multiple of the teacher's cost."""


def _against_teacher(numbers: EvaluationNumbers) -> Comparison:
    path = ("paired", f"{numbers.candidate}_vs_teacher")
    title = f"{numbers.candidate.upper()} minus teacher, {FIRST_IN_WORDS[decided_by(numbers)]}"
    return Comparison(path, title, "the teacher", (*path, "n"), "queries")


def _judged_rows(numbers: EvaluationNumbers) -> float:
    """Return how many rows without gold the examiner judged; 0 if an older evaluation does not count them."""
    return numbers("counts", "judged") if numbers.has("counts", "judged") else 0.0


def decided_by(numbers: EvaluationNumbers) -> By:
    """Return `labels` if the examiner judged some of the rows, else `gold`."""
    return "labels" if _judged_rows(numbers) else "gold"


def _enough_queries(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    n, cross_fitted = numbers("paired", f"{numbers.candidate}_vs_teacher", "n"), numbers.cross_fitted
    if cross_fitted and n < gate.cross_rows:
        yield TooFew(f"Too few: {n:.0f} queries were cross-fitted, and {gate.cross_rows} are wanted. Label more.")
    if not cross_fitted and n < gate.rows:
        compared = "with gold passages" if gate.by == "gold" else "with gold passages or judged ones"
        yield TooFew(f"Too few: {n:.0f} queries {compared} were compared, and {gate.rows} are wanted.")


def _judged_as_the_gate_says(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    if not (judged := _judged_rows(numbers)):
        return
    if gate.by == "gold":
        yield f"The examiner judged {judged:.0f} rows without gold, and this gate goes by gold alone (gate.by)."
        return
    for name in (numbers.candidate, "teacher", "plain"):
        if (share := numbers("systems", name, "first_judged", "value")) < LEAST_JUDGED:
            yield (
                f"Of {name}'s first passages in rows without gold {share:.1%} have a grade of the examiner; at least "
                f"{LEAST_JUDGED:.0%} are needed. Its other answers could not be used: try another examiner."
            )


def _better_than_teacher(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    hint = ""
    if numbers.has("power", "interesting", "queries"):
        needed, size = (numbers.value("power", "interesting", name) for name in ("queries", "difference"))
        if needed is not None:
            hint = f" To show {100 * size:+.1f} points takes about {needed:,.0f} queries like these."
    yield from _against_teacher(numbers).not_better(numbers, level_of(gate.p, numbers), hint)


def _better_than_plain(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    at, candidate = ("paired", f"{numbers.candidate}_vs_plain"), numbers.candidate.upper()
    low, high, difference = (100 * numbers(*at, name) for name in ("low", "high", "difference"))
    measured = f"{candidate} minus no rewrite, top-1: {difference:+.1f} points [{low:+.1f}, {high:+.1f}]."
    if low > high:
        yield f"The interval is impossible. {measured}"
    elif high < 0:
        yield f"Worse than no rewrite. {measured}"
    elif low <= 0 or difference <= 0:
        yield f"Better than no rewrite: not shown. {measured}"


def _no_worse_elsewhere(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    """Yield a reason to hold if nDCG or recall may be worse than the teacher's, overall or for one of several
    tenants."""
    pair = f"{numbers.candidate}_vs_teacher"
    tenants = numbers.value("paired", pair, "tenants")
    if not isinstance(tenants, Mapping) or not tenants:
        raise MissingNumberError(f"paired.{pair}.tenants is empty")
    paths: dict[str, tuple[str, ...]] = {"": ("paired", pair)}
    if len(tenants) > 1:
        paths |= {f" for {tenant}": ("paired", pair, "tenants", tenant) for tenant in tenants}
    for where, path in paths.items():
        for metric, words in OTHER_GATED_METRICS.items():
            if (low := numbers(*path, metric, "low")) <= -gate.margin:
                yield (
                    f"{words}{where} may be worse than the teacher's by {-100 * low:.1f} points; "
                    f"{100 * gate.margin:.1f} points are allowed."
                )


def _no_kind_worse(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    if not (numbers.has("kinds") or numbers.has("settings", "gate", "kind_margin")):
        return  # judged before kinds were measured
    for kind, p in shown_losses(numbers, gate).items():
        gap, low, high, queries = _kind_gap(numbers, kind)
        yield (
            f"Worse than the teacher in questions of the kind “{kind}”: {gap:+.1f} points "
            f"[{low:+.1f}, {high:+.1f}], {queries:.0f} queries; a loss beyond "
            f"{100 * gate.kind_margin:.1f} points is shown (p {p:.4f})."
        )


def _kind_gap(numbers: EvaluationNumbers, kind: str) -> tuple[float, float, float, float]:
    """Return the candidate's difference to the teacher in a kind of question, the ends of its interval (all in
    points), and the number of queries."""
    at = ("kinds", kind, "difference")
    gap, low, high = (100 * numbers(*at, name) for name in ("difference", "low", "high"))
    return gap, low, high, numbers(*at, "n")


def shown_losses(numbers: EvaluationNumbers, gate: GateConfig) -> dict[str, float]:
    """Return the kinds of question in which a loss beyond the margin is shown, each with its p. A loss is shown if p
    is below the gate's level after Holm's correction, and the whole interval is beyond the margin."""
    return {
        kind: p
        for kind, p in loss_ps(numbers, gate).items()
        if p < gate.p and numbers("kinds", kind, "difference", "high") < -gate.kind_margin
    }


def loss_ps(numbers: EvaluationNumbers, gate: GateConfig) -> dict[str, float]:
    """Return the p of a loss beyond the margin for each kind of question, after Holm's correction over all kinds.
    Kinds with too few questions to compare are left out."""
    from qinglan.evaluation.statistics import holm

    kinds = numbers.value("kinds")
    if not isinstance(kinds, Mapping) or not kinds:
        raise MissingNumberError("kinds is empty")
    ps = {}
    for kind in kinds:
        paths = [("kinds", kind, "difference", name) for name in ("difference", "low", "high")]
        if all(numbers.value(*path) is not None for path in paths):
            difference, _, high = (numbers(*path) for path in paths)
            ps[kind] = loss_p(difference, high, gate.kind_margin)
    return holm(ps)


def loss_p(difference: float, high: float, margin: float) -> float:
    """Return the one-sided p of a loss beyond the margin, from a difference and its interval's upper end."""
    # p = Phi((difference + margin) / s). The deviation s comes from the upper half of the 95 % interval, which is
    # 1.96 s long. The whole width is not used: with few questions the interval is lopsided, and s would then show
    # losses that the interval's upper end does not show.
    if high <= difference:
        return float(difference >= -margin)
    return NormalDist(0, (high - difference) / UPPER_DEVIATIONS).cdf(difference + margin)


UPPER_DEVIATIONS = NormalDist().inv_cdf(0.975)
"""Distance from a difference to the upper end of its 95 % interval, in standard deviations: 1.96."""


def _at_most_times(metric: str, setting: str, words: Callable[[float, float, float], str]) -> Check:
    """Return a check that the candidate's figure is at most the teacher's figure times a setting."""

    def check(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
        value, teacher = (numbers("systems", name, metric, "value") for name in (numbers.candidate, "teacher"))
        if value > (most := getattr(gate, setting)) * teacher:
            yield words(value, teacher, most)

    return check


def _at_most(metric: str, words: str, above_teacher: bool = False) -> Check:
    """Return a check that a share of the candidate's rewrites is at most the setting with the metric's name. With
    `above_teacher`, the teacher's share is added to the limit."""

    def check(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
        limit = getattr(gate, metric)
        if above_teacher:
            limit += numbers("systems", "teacher", metric, "value")
        if (share := numbers("systems", numbers.candidate, metric, "value")) > limit:
            yield f"{share:.1%} of the rewrites {words}; {limit:.1%} are allowed."

    return check


def _no_leak(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    yield from leak_reasons(numbers, _required_names(LEARNED_FROM, numbers.candidate), gate.alike)


def _another_judge(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    if not numbers("counts", "examined") and not _judged_rows(numbers):
        return
    names = {role: numbers.value("agreement", role) for role in ("examiner", "judge")}
    if unknown := [role for role, name in names.items() if plain_model_name(name) in ("", "unknown")]:
        yield f"Nobody knows which model was the {' and the '.join(unknown)}: its scores may be no second opinion."
    elif same_model(names["examiner"], names["judge"]):
        yield (
            f"The examiner, {names['examiner']}, is the training's judge, {names['judge']}: its scores are no second "
            "opinion. Set another model as examiner."
        )


def _named_by_digests(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    yield from missing_digests(numbers, ("digests", "predictions"))
    yield from _origins(numbers, "digests")
    if numbers.cross_fitted:
        folds = numbers.value("digests", "folds")
        if not isinstance(folds, Mapping) or len(folds) != numbers("cross_fitted", "folds"):
            yield "digests.folds does not name every fold: nobody can tell what each row was rewritten by."
        for fold in folds if isinstance(folds, Mapping) else ():
            yield from missing_digests(numbers, ("digests", "folds", fold, "test"))
            yield from _origins(numbers, "digests", "folds", fold)
    else:
        yield from missing_digests(numbers, ("digests", "test"))
    bases = numbers.value("digests", "knowledge_bases")
    if not (isinstance(bases, list) and bases and all(isinstance(base, str) and base for base in bases)):
        yield "digests.knowledge_bases names none: the RAG service must say what it answered from (snapshot)."


def _origins(numbers: EvaluationNumbers, *at: str) -> Iterator[str]:
    """Yield reasons to hold if models, training rows or inputs of trainings are not named by digests, or if RL was
    trained from another SFT model than the evaluated one."""
    candidate = numbers.candidate
    names = tuple(dict.fromkeys(("sft", candidate)))
    models = [(*at, "models", name) for name in names]
    learned = [(*at, "training", part) for part in _required_names(LEARNED_FROM, candidate)]
    parents = [(*at, "parents", name, parent) for name in names for parent in _required_names(PARENTS, name)]
    yield from missing_digests(numbers, *models, *learned, *parents)
    before = (*at, "parents", "rl", "sft_model")
    if candidate == "rl" and numbers.value(*before) != numbers.value(*at, "models", "sft"):
        yield "RL was trained from another SFT model than the one beside it."


def _required_names(expected: Mapping[str, tuple[str, ...]], candidate: str) -> tuple[str, ...]:
    if candidate not in expected:
        raise MissingNumberError(f"{candidate!r} is no candidate that this gate knows")
    return expected[candidate]


CONDITIONS: tuple[Check, ...] = (
    _enough_queries,
    _judged_as_the_gate_says,
    _better_than_teacher,
    _better_than_plain,
    _no_worse_elsewhere,
    _no_kind_worse,
    _at_most_times(
        "length",
        "length_ratio",
        lambda length, teacher, most: (
            f"Rewrites have {length:.1f} characters, the teacher's {teacher:.1f}: over {most:g} times."
        ),
    ),
    _at_most("copied", "copy the history or a passage"),
    _at_most("invented", "hold a number that nobody mentioned"),
    _at_most("zero_hit", "find nothing", above_teacher=True),
    _at_most_times(
        "cost",
        "cost_ratio",
        lambda cost, teacher, most: (
            f"1,000 rewrites cost {cost:.4g} against the teacher's {teacher:.4g}: over {most:g} times."
        ),
    ),
    _no_leak,
    _another_judge,
    _named_by_digests,
)


def _praise(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    """Describe the gain, then each significant loss against the teacher that the gate permits, so that readers see
    it."""
    yield _against_teacher(numbers).summary(numbers)
    if judged := _judged_rows(numbers):
        examiner = numbers.value("agreement", "examiner")
        yield f"Yet this is judged, not gold: {examiner} judged {judged:.0f} of the test's rows, and no person did."
    pair = numbers.value("paired", f"{numbers.candidate}_vs_teacher")
    for metric, words in UNGATED_METRICS.items():
        gap = pair.get(metric) or {}
        low, high = gap.get("low"), gap.get("high")
        if isinstance(low, float) and isinstance(high, float) and high < 0:
            yield f"Yet {words} is below the teacher's: {gap['difference']:+.2f} [{low:+.2f}, {high:+.2f}]."
    for kind in numbers.value("kinds") if numbers.has("kinds") else ():  # none before kinds were measured
        high = numbers.value("kinds", kind, "difference", "high")  # null: too few questions to compare
        if high is not None and numbers("kinds", kind, "difference", "high") < 0:
            gap, low, high, queries = _kind_gap(numbers, kind)
            yield (
                f"Yet it is below the teacher in questions of the kind “{kind}”: {gap:+.1f} points "
                f"[{low:+.1f}, {high:+.1f}], {queries:.0f} queries; a loss beyond "
                f"{100 * gate.kind_margin:.1f} points is not shown."
            )


def _describe_folds(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    if numbers.cross_fitted:
        yield (
            f"Cross-fitted: {numbers('counts', 'rows'):.0f} questions, each rewritten by one of "
            f"{numbers('cross_fitted', 'folds'):.0f} models that did not learn from it. The figures are of these "
            "siblings of the released model, which learned from all rows. "
            f"{_against_teacher(numbers).summary(numbers)}"
        )


def _describe_baselines(numbers: EvaluationNumbers) -> Iterator[str]:
    """Yield a sentence for each metric in which a simpler system is significantly better than the teacher. Pairs that
    an older evaluation did not compare are skipped."""
    for pair, sign, words in BASELINES:
        for metric in ("", *OTHER_GATED_METRICS):
            path = ("paired", pair, metric) if metric else ("paired", pair)
            try:
                name = OTHER_GATED_METRICS.get(metric) or FIRST_IN_WORDS[decided_by(numbers)]
                gap, low, high = (100 * numbers(*path, end) for end in ("difference", "low", "high"))
            except MissingNumberError:
                continue
            if min(sign * low, sign * high) > 0:
                yield f"{words} by {name}: {gap:+.1f} points [{low:+.1f}, {high:+.1f}]."


def _after(numbers: EvaluationNumbers, gate: GateConfig) -> Iterator[str]:
    return chain(_describe_baselines(numbers), describe_uses(numbers, gate))


LINE = Line(CONDITIONS, _praise, _describe_folds, _after)
LIMITS = RewriterLimits()
"""Project's own limits, which hold everywhere; an organisation's trust policy may set stricter limits."""


def decide(evaluation: Mapping[str, Any], gate: GateConfig, limits: RewriterLimits = LIMITS) -> Verdict:
    """Return the verdict on the evaluation's candidate; any doubt holds the candidate."""
    return decide_line(evaluation, LINE, gate, limits)
