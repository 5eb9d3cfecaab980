"""Limits on a gate's settings, which no profile can exceed; an organisation's own may only be stricter.

faults = limit_faults({"draws": 1, "gate": {"p": 1.0}}, RewriterLimits())    # a sentence for each
stricter = tightened(settings, limits)                                        # each limit applied

A field with `ge` is a minimum, one with `le` a maximum, whose `Least` is the smallest value that a model can meet.
Its bound is the project's own limit, so that an organisation's value beyond it is an error of the trust policy.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from pydantic.fields import FieldInfo

from qinglan.config import Config


class Least(NamedTuple):
    """The smallest value that a model can meet: a lower setting would hold every model, after all is paid."""

    value: float


class RewriterGateLimits(Config):
    """Limits on `evaluate.gate` of the rewriter's line."""

    by: Literal["gold", "labels"] = "labels"
    """Source of the right passage: `gold` accepts only gold, `labels` accepts both."""

    rows: int = Field(default=30, ge=30)
    """Paired queries required, at least: the bootstrap's intervals of fewer are too narrow."""

    cross_rows: int = Field(default=30, ge=30)
    """Queries of a cross-fitted evaluation required, at least."""

    p: float = Field(default=0.05, gt=0, le=0.05)
    """Significance level, at most."""

    kind_margin: float = Field(default=0.05, ge=0, le=0.05)
    """Loss allowed in top-1 for a kind of question, as a share, at most."""

    margin: float = Field(default=0.03, ge=0, le=0.03)
    """Loss allowed in nDCG@10 and recall@10, as a share, at most."""

    length_ratio: Annotated[float, Least(0.1)] = Field(default=3.0, gt=0, le=3.0)
    """Mean length over the teacher's, at most."""

    copied: float = Field(default=0.1, ge=0, le=0.1)
    """Share of rewrites that copy, at most."""

    invented: float = Field(default=0.05, ge=0, le=0.05)
    """Share of rewrites with an invented number, at most."""

    zero_hit: float = Field(default=0.05, ge=0, le=0.05)
    """Share of queries that find nothing, above the teacher's, at most."""

    alike: Annotated[float, Least(0.1)] = Field(default=0.9, gt=0, le=0.9)
    """Similarity from which a test row counts as learned, at most."""

    cost_ratio: Annotated[float, Least(0.001)] = Field(default=10.0, gt=0, le=10.0)
    """Cost over the teacher's, at most."""


class RewriterLimits(Config):
    """Limits on `evaluate` of the rewriter's line."""

    draws: int = Field(default=1_000, ge=1_000)
    """Draws of bootstrap and permutation test, at least."""

    gate: RewriterGateLimits = RewriterGateLimits()
    """Limits on the gate's settings."""


class StyleGateLimits(Config):
    """Limits on `evaluate.gate` of the style line, also for its distilled model."""

    rows: int = Field(default=30, ge=30)
    """Test rows required, at least."""

    cross_rows: int = Field(default=20, ge=20)
    """Rows of a cross-fitted evaluation required, at least."""

    class_rows: int = Field(default=5, ge=5)
    """Test rows of each label required, at least."""

    p: float = Field(default=0.05, gt=0, le=0.05)
    """Significance level, at most."""

    class_margin: float = Field(default=0.1, ge=0, le=0.1)
    """Loss allowed in a label's F1, as a share, at most."""

    teacher_margin: float = Field(default=0.05, ge=0, le=0.05)
    """Loss of macro F1 allowed against a distilled model's teacher, as a share, at most."""

    alike: Annotated[float, Least(0.1)] = Field(default=0.9, gt=0, le=0.9)
    """Similarity from which a test row counts as learned, at most."""

    ece: Annotated[float, Least(0.001)] = Field(default=0.15, ge=0, le=0.15)
    """Expected calibration error, at most."""

    ece_worse: float = Field(default=0.05, ge=0, le=0.05)
    """Calibration error added by the temperature, at most."""


class StyleLimits(Config):
    """Limits on `evaluate` of the style line."""

    draws: int = Field(default=1_000, ge=1_000)
    """Draws of bootstrap and permutation test, at least."""

    alike: Annotated[float, Least(0.1)] = Field(default=0.9, gt=0, le=0.9)
    """Similarity from which test rows are drawn together, at most."""

    gate: StyleGateLimits = StyleGateLimits()
    """Limits on the gate's settings."""


class Limits(Config):
    """Limits of both lines, as a trust policy's `evaluate` has them."""

    counted: bool = False
    """Refusal of evaluations that count no models judged by their test (locked_test_uses.py): those of a run without
    a store, and those from before uses were counted."""

    rewriter: RewriterLimits = RewriterLimits()
    """Limits on a rewriter's evaluation and gate."""

    style: StyleLimits = StyleLimits()
    """Limits on a style model's evaluation and gate."""


def limit_faults(settings: Mapping[str, Any], limits: Config, path: str = "") -> Iterator[str]:
    """Name each setting that is laxer than its limit. A setting that is not recorded counts as within the project's
    own limit, and beyond an organisation's."""
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
    """Raise a ValueError, for a validator, that names each setting laxer than its limit, or too strict for any
    model."""
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
    """Name each setting that is too strict for every model."""
    for name, field in type(limits).model_fields.items():
        if isinstance(limit := getattr(limits, name), Config):
            yield from _unmet(settings[name], limit, f"{path}{name}.")
        for least in field.metadata:
            if isinstance(least, Least) and settings[name] < least.value:
                yield f"{path}{name} is set to {settings[name]:g}: at least {least.value:g} is needed"


def tightened(settings: Mapping[str, Any], limits: Config) -> dict[str, Any]:
    """The settings, each limited one within its limit; none is added."""
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
    """The value or the limit, whichever holds more models."""
    if isinstance(limit, str):
        return limit if limit != field.default else value
    return max(value, limit) if _is_minimum(field) else min(value, limit)


def _is_minimum(field: FieldInfo) -> bool:
    return all(getattr(bound, "le", None) is None for bound in field.metadata)


def _allowed(field: FieldInfo, limit: Any) -> str:
    if isinstance(limit, str):
        return f"only {limit} is allowed"
    return f"at least {limit:,} is required" if _is_minimum(field) else f"at most {limit:g} is allowed"
