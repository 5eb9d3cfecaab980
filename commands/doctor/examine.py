"""All checks of `qinglan doctor`, in order: the machine, the profile, its models, the cluster."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from commands.doctor.cluster import cluster_checks
from commands.doctor.machine import machine_checks
from commands.doctor.profile import profile_checks
from commands.doctor.providers import provider_checks
from pipelines.checks.checks import Check, failed
from pipelines.checks.readiness import disallowed_hosts
from pipelines.execute.rundir import RUNS, run_folder
from pipelines.lines.config import load_config
from pipelines.lines.overrides import with_overrides
from pipelines.lines.rewriter import RunConfig
from qinglan.errors import QinglanError
from qinglan.llm.config import PaidModel


def examine(
    tenant: str, profile: str, questions: Path | None, knowledge_base: Path | None, options: Sequence[str],
    paid: bool, cluster: bool, namespace: str,
) -> list[Check]:  # fmt: skip
    """Run every check for these options. A profile that cannot be read is reported among the errors."""
    folder = run_folder(tenant, profile) if tenant else RUNS
    checks = list(machine_checks(folder))
    config: RunConfig | None = None
    if tenant:
        try:
            settings = with_overrides(options, questions=questions, knowledge_base=knowledge_base)
            config = load_config(tenant, profile, **settings)
            checks.append(Check("ok", "profile", f"{tenant}/{Path(profile).stem} can be read."))
        except QinglanError as error:
            checks.append(failed("profile", error))
    if config is not None:
        of_profile = [*profile_checks(config, folder, date.today(), cluster)]
        if any(check.subject == "room" for check in of_profile):  # the profile's own check replaces the general one
            checks = [check for check in checks if check.subject != "room"]
        checks += [*of_profile, *provider_checks(callable_models(config), paid)]
    if cluster:
        checks += cluster_checks(config, tenant, profile, namespace)
    return checks


def callable_models(config: RunConfig) -> dict[str, PaidModel]:
    """Return the paid models whose hosts may be called, by role; the profile's checks already report other hosts."""
    if not config.pays:
        return {}
    models: dict[str, PaidModel] = {str(role): model for role, model in config.gateway.models().items()}
    return {role: model for role, model in models.items() if not any(disallowed_hosts({role: model.base_url}))}
