"""Find, before a run pays for anything, the reasons why its gate could not promote a model."""

from collections.abc import Collection, Iterable, Iterator

from components.evaluation.rewriter.gate_precheck import Obstacle, PlannedRun, find_obstacles
from pipelines.lines.rewriter import RunConfig
from pipelines.lines.sheet import Sheet, single_conversation
from qinglan.config import Config


class Promotion(Config):
    """Known facts on whether a run's model can be promoted. The gate judges the model's figures only at the end."""

    possible: bool
    """False if the run would be refused, or if its gate would hold any model."""

    refusals: tuple[Obstacle, ...]
    """Reasons why a whole run does not even start, each with the next step."""

    obstacles: tuple[Obstacle, ...]
    """Reasons why the gate would hold the model, each with the next step."""

    unchecked: tuple[str, ...]
    """Possible reasons for a hold that were not checked."""


def promotion(
    config: RunConfig, sheet: Sheet | None, snapshot: bool | None = None, refusals: Iterable[Obstacle] = ()
) -> Promotion:
    """Apply the gate's thresholds. `snapshot` is True if the RAG service names its knowledge base, None if
    unknown."""
    refusals = tuple(refusals)
    models, snapshot = config.gateway.models(), True if config.stand_ins.rag else snapshot
    price = models["teacher"].price
    prospect = PlannedRun(
        judge=models["judge"].model, examiner=models["examiner"].model, test=sheet.test if sheet else None,
        teacher_price=price.input + price.output, hour_price=config.evaluate.gpu_hour_price, snapshot=snapshot,
        cross_fitted=bool(sheet and sheet.folds), cross_fit=bool(config.cross_fit),
        labelled=len(sheet.gold) if sheet else 0,
    )  # fmt: skip
    reasons, unchecked = [*small_sheet(config, sheet), *find_obstacles(prospect, config.evaluate.gate)], []
    if config.stand_ins.teacher and not config.register_.allow_stand_in:
        stand_in = Obstacle(
            reason="A stand-in teaches this run, to try the machinery: its model is of no use, and not released.",
            next_step="Take a profile with a real teacher.",
        )
        reasons = [stand_in, *reasons]
    if sheet is None:
        unchecked.append("How many rows of the locked test have gold passages. `qinglan plan` counts them.")
    if snapshot is None:
        unchecked.append(
            f"Whether the RAG service at {config.gateway.rag.base_url} names the knowledge base in its answers "
            "(data.snapshot), as the gate asks. `qinglan plan` and `qinglan run` look before anything is paid."
        )
    return Promotion(
        possible=not reasons and not refusals, refusals=refusals, obstacles=tuple(reasons), unchecked=tuple(unchecked)
    )


def small_sheet(config: RunConfig, sheet: Sheet | None) -> Iterator[Obstacle]:
    """Yield an obstacle if the sheet has fewer rows in all than the test needs, so that no split or label helps."""
    gate = config.evaluate.gate
    rows, required = sheet.splits.total() if sheet else 0, gate.cross_rows if config.cross_fit else gate.rows
    if sheet and not sheet.folds and rows < required:
        if config.cross_fit:
            labels = f"Give {gate.cross_rows:,} questions gold passages (so far {len(sheet.gold):,} have them)"
        else:
            labels = f"Bring {gate.cross_rows:,} questions with gold passages, and set `cross_fit: 5`"
        yield Obstacle(
            reason=f"The sheet has {rows:,} rows in all, and the test alone needs {required:,}: "
            "figures of so few would be chance.",
            next_step=f"There are three ways. 1. {labels}, or bring about 2,000 questions, "
            "of which 200 become the locked test. 2. Read in report.html which passages judges call relevant, if the "
            "`label` stage is on. 3. Let people score blind_sample.xlsx: `qinglan blind SHEET --out RUN`.",
        )


def too_few_rows(config: RunConfig, sheet: Sheet, stages: Collection[str]) -> Iterator[Obstacle]:
    """Report splits with fewer rows than a stage needs: train for PPO, dev for SFT, test for the evaluation."""
    trainings, prompts = [sheet.splits, *sheet.folds], config.ppo.prompts
    if "convert" in stages and (repeated := only_near_duplicates(config, sheet, stages)):
        yield repeated
        return
    rows, left = min(sheet.trainings), min(splits["train"] for splits in sheet.left)
    # augment may add questions from passages, as a share of PPO's prompts
    if "ppo" in stages and (rows < prompts or left < (1 - config.augment.anchor_share) * prompts):
        most = left * config.ppo.rollouts // config.ppo.batch * config.ppo.batch
        smaller = f"set ppo.collection to {most} or less, " if most else ""
        without = f" Without near duplicates of dev and test {left:,} are left." if left < rows else ""
        yield Obstacle(
            reason=f"The sheet has {rows:,} rows for training, and a step of PPO takes {prompts:,} prompts.{without}",
            next_step=f"Bring more {'different questions' if without else 'rows'}, {smaller}or end before PPO with "
            "--until sft.",
        )
    least = {"dev": min(splits["dev"] for splits in trainings), "test": sheet.test_rows}
    lacking = {"sft": "dev", "evaluate": "test"}
    lacking = {stage: split for stage, split in lacking.items() if stage in stages and not least[split]}
    if lacking and (single := single_conversation(config, sheet)):
        yield single
        return
    for stage, split in lacking.items():
        yield Obstacle(
            reason=f"{config.questions}: no row is for {split}, which {stage} needs.",
            next_step=f"Write {split} into {config.generate.columns.split} of some conversations, bring more "
            "rows, or try another convert.seed.",
        )


def only_near_duplicates(config: RunConfig, sheet: Sheet, stages: Collection[str]) -> Obstacle | None:
    """Return an obstacle if all rows of train, or all rows of dev, are near duplicates; otherwise None."""
    for split in ("train", "dev") if "sft" in stages else ("train",):  # convert itself writes an empty dev
        for splits, left in zip([sheet.splits, *sheet.folds], sheet.left, strict=True):
            if splits[split] and not left[split]:
                return Obstacle(
                    reason=f"{config.questions}: all {splits[split]:,} rows of {split} nearly repeat a row of "
                    f"{'dev or test' if split == 'train' else 'test'}, and convert leaves them out.",
                    next_step="Bring more different questions: one that many rows repeat counts once.",
                )
    return None


def cluster_promotion_notes(config: RunConfig) -> list[str]:
    """Say what in the profile prevents a promotion on a cluster; the sheet and the RAG service are not read."""
    unchecked = (
        "Not looked at: whether the cluster's RAG service names the knowledge base in its answers (data.snapshot). "
        "This is about the profile."
    )
    first, *reasons = promotion_lines(promotion(config, None, snapshot=True))
    lines = [f"Can this be promoted? {first}", *reasons, unchecked]
    if config.cross_fit:
        lines.append(
            "No sheet is cross-fitted on a cluster: the gate holds there with fewer labelled rows in the locked test "
            f"than evaluate.gate.rows, {config.evaluate.gate.rows:,}. `qinglan run` with this profile cross-fits a "
            "small sheet on one machine."
        )
    return lines


def promotion_lines(answer: Promotion) -> list[str]:
    """Say whether the model can be promoted, then give each reason in a line."""
    open_ = "Nothing that is known beforehand stands against it; the gate will decide on the numbers."
    if answer.refusals:
        lines = ["No: a whole run is refused before it pays."]
    elif answer.obstacles:
        lines = ["No, whatever the models learn."]
    else:
        lines = [f"Yes. {open_}"]
    lines += [f"- {reason.reason} {reason.next_step}" for reason in (*answer.refusals, *answer.obstacles)]
    return [*lines, *(f"Not looked at: {question}" for question in answer.unchecked)]
