"""The candidate stage as a KFP component; it decides nothing."""

from kfp import dsl

from components.image import DATA_IMAGE


@dsl.component(base_image=DATA_IMAGE, install_kfp_package=False)
def candidate(
    before: dsl.Input[dsl.Artifact],
    evaluation: dsl.Input[dsl.Artifact],
    rl_model: dsl.Input[dsl.Model],
    release_candidate: dsl.Output[dsl.Artifact],
    lineage: dsl.Output[dsl.Artifact],
) -> None:
    """What may be released, by digest."""
    from pathlib import Path

    from components.release.candidate import stage
    from qinglan.lineage.record import recorded

    inputs = {"evaluation": evaluation, "rl_model": rl_model}
    with recorded("candidate", inputs, {"release_candidate": release_candidate}, {}, lineage, before) as step:
        made = stage.candidate(Path(evaluation.path), Path(rl_model.path), Path(release_candidate.path))
        step.facts.update(made._asdict())
