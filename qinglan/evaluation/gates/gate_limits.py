"""Limits on a gate's settings that no profile can exceed. An organisation may set only stricter limits.

faults = limit_faults({"draws": 1, "gate": {"p": 1.0}}, RewriterLimits())    # a sentence for each laxer setting
stricter = tightened(settings, limits)                                        # settings within all limits

A limit is a minimum if its field has `ge`, and a maximum if it has `le`. The bound of the field is the project's own
limit, so a trust policy with a laxer value is refused. `Least` is the smallest value of a setting that a model can
meet.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from pydantic.fields import FieldInfo

from qinglan.config import Config


class Least(NamedTuple):
    """Smallest value of a setting that a model can meet. A smaller setting is refused before the run, because the
    gate would hold every model after the whole run was paid for."""

    value: float


class RewriterGateLimits(Config):
    """Limits on `evaluate.gate` of the rewriter's line."""

    by: Literal["gold", "labels"] = "labels"
    """Allowed sources of the right passage: `gold` allows only gold passages, `labels` allows gold and labels."""

    rows: int = Field(default=30, ge=30)
    """Lowest number of paired queries that a gate may require. With fewer, bootstrap intervals are too narrow."""

    cross_rows: int = Field(default=30, ge=30)
    """Lowest number of queries that a gate may require of a cross-fitted evaluation."""

    p: float = Field(default=0.05, gt=0, le=0.05)
    """Highest significance level that a gate may use."""

    kind_margin: float = Field(default=0.05, ge=0, le=0.05)
    """Highest loss of top-1 in a kind of question that a gate may allow, as a share."""

    margin: float = Field(default=0.03, ge=0, le=0.03)
    """Highest loss of nDCG@10 and of recall@10 that a gate may allow, as a share."""

    length_ratio: Annotated[float, Least(0.1)] = Field(default=3.0, gt=0, le=3.0)
    """Highest mean length of rewrites that a gate may allow, as a multiple of the teacher's mean length."""

    copied: float = Field(default=0.1, ge=0, le=0.1)
    """Highest share of rewrites with copied text that a gate may allow."""

    invented: float = Field(default=0.05, ge=0, le=0.05)
    """Highest share of rewrites with an invented number that a gate may allow."""

    zero_hit: float = Field(default=0.05, ge=0, le=0.05)
    """Highest share of queries without a hit that a gate may allow in addition to the teacher's share."""

    alike: Annotated[float, Least(0.1)] = Field(default=0.9, gt=0, le=0.9)
    """Highest similarity to a training row that a gate may set as the threshold for a leaked test row."""

    cost_ratio: Annotated[float, Least(0.001)] = Field(default=10.0, gt=0, le=10.0)
    """Highest cost of rewrites that a gate may allow, as a multiple of the teacher's cost."""


class RewriterLimits(Config):
    """Limits on `evaluate` of the rewriter's line."""

    draws: int = Field(default=1_000, ge=1_000)
    """Lowest number of draws of the bootstrap and of the permutation test."""

    gate: RewriterGateLimits = RewriterGateLimits()
    """Limits on the gate's settings."""


class StyleGateLimits(Config):
    """Limits on `evaluate.gate` of the style line, which also hold for a distilled model."""

    rows: int = Field(default=30, ge=30)
    """Lowest number of test rows that a gate may require."""

    cross_rows: int = Field(default=20, ge=20)
    """Lowest number of rows that a gate may require of a cross-fitted evaluation."""

    class_rows: int = Field(default=5, ge=5)
    """Lowest number of test rows that a gate may require of each label."""

    p: float = Field(default=0.05, gt=0, le=0.05)
    """Highest significance level that a gate may use."""

    class_margin: float = Field(default=0.1, ge=0, le=0.1)
    """Highest loss of a label's F1 that a gate may allow, as a share."""

    teacher_margin: float = Field(default=0.05, ge=0, le=0.05)
    """Highest loss of macro F1 against its teacher that a gate may allow a distilled model, as a share."""

    alike: Annotated[float, Least(0.1)] = Field(default=0.9, gt=0, le=0.9)
    """Highest similarity to a training row that a gate may set as the threshold for a leaked test row."""

    ece: Annotated[float, Least(0.001)] = Field(default=0.15, ge=0, le=0.15)
    """Highest expected calibration error that a gate may allow."""

    ece_worse: float = Field(default=0.05, ge=0, le=0.05)
    """Highest increase of the calibration error, caused by the temperature, that a gate may allow."""


class StyleLimits(Config):
    """Limits on `evaluate` of the style line."""

    draws: int = Field(default=1_000, ge=1_000)
    """Lowest number of draws of the bootstrap and of the permutation test."""

    alike: Annotated[float, Least(0.1)] = Field(default=0.9, gt=0, le=0.9)
    """Highest similarity that may be set as the threshold from which the bootstrap draws test rows together."""

    gate: StyleGateLimits = StyleGateLimits()
    """Limits on the gate's settings."""


class Limits(Config):
    """Limits on both model lines. In a trust policy, they are the section `evaluate`."""

    counted: bool = False
    """Refusal of evaluations that do not record how many models their locked test has judged (locked_test_uses.py).
    Evaluations of a run without a store do not record it."""

    rewriter: RewriterLimits = RewriterLimits()
    """Limits on a rewriter's evaluation and gate."""

    style: StyleLimits = StyleLimits()
    """Limits on a style model's evaluation and gate."""


def limit_faults(settings: Mapping[str, Any], limits: Config, path: str = "") -> Iterator[str]:
    """Yield a sentence for each setting that is laxer than its limit. A missing setting is accepted if its limit is
    the project's own, and is a fault if an organisation has made the limit stricter."""
    for name, field in type(limits).model_fields.items():
        limit, value = getattr(limits, name), settings.get(name)
        if isinstance(limit, Config):
            yield from limit_faults(value if isinstance(value, Mapping) else {}, limit, f"{path}{name}.")
        elif value is None and limit != field.default:
            yield f"{path}{name} is not recorded: {_allowed(field, limit)}"
        elif value is not None and not _is_of_kind(value, limit):
            yield f"{path}{name} is {value!r}, which is impossible"
        elif value is not None and _stricter(field, value, limit) != value:
            yield f"{path}{name} is set to {value}: {_allowed(field, limit)}"


def refuse_impossible(settings: Config, limits: Config) -> None:
    """Raise a ValueError, for use in a validator, that names each setting that is laxer than its limit or so strict
    that no model can meet it."""
    values = settings.model_dump()
    if faults := list(limit_faults(values, limits)):
        raise ValueError(f"{'; '.join(faults)}. No profile can exceed these limits")
    faults, p, draws = list(_unmet(values, limits)), values["gate"]["p"], values["draws"]
    # A permutation test's p is at least 1 / (1 + draws), and must be below the gate's (statistics.py).
    if p <= (smallest := 1 / (draws + 1)):
        faults.append(
            f"gate.p is set to {p:g}: more than {smallest:g} is needed, the least that {draws:,} draws can show"
        )
    if faults:
        raise ValueError(f"{'; '.join(faults)}. No model can meet this, so nothing could be promoted")


def _unmet(settings: Mapping[str, Any], limits: Config, path: str = "") -> Iterator[str]:
    """Yield a sentence for each setting that is so strict that no model can meet it."""
    for name, field in type(limits).model_fields.items():
        if isinstance(limit := getattr(limits, name), Config):
            yield from _unmet(settings[name], limit, f"{path}{name}.")
        for least in field.metadata:
            if isinstance(least, Least) and settings[name] < least.value:
                yield f"{path}{name} is set to {settings[name]:g}: at least {least.value:g} is needed"


def tightened(settings: Mapping[str, Any], limits: Config) -> dict[str, Any]:
    """Return the settings, with the limit instead of each laxer value. Missing settings are not added."""
    tight = dict(settings)
    for name, field in type(limits).model_fields.items():
        limit, value = getattr(limits, name), settings.get(name)
        if isinstance(limit, Config):
            tight |= {name: tightened(value, limit)} if isinstance(value, Mapping) else {}
        elif value is not None:
            tight[name] = _stricter(field, value, limit)
    return tight


def _is_of_kind(value: Any, limit: Any) -> bool:
    if isinstance(limit, str):
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _stricter(field: FieldInfo, value: Any, limit: Any) -> Any:
    """Return the stricter one of a setting's value and its limit."""
    if isinstance(limit, str):
        return limit if limit != field.default else value
    return max(value, limit) if _is_minimum(field) else min(value, limit)


def _is_minimum(field: FieldInfo) -> bool:
    return all(getattr(bound, "le", None) is None for bound in field.metadata)


def _allowed(field: FieldInfo, limit: Any) -> str:
    if isinstance(limit, str):
        return f"only {limit} is allowed"
    return f"at least {limit:,} is required" if _is_minimum(field) else f"at most {limit:g} is allowed"
