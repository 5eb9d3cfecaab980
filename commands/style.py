"""`qinglan style`: train the style model, and predict the style of each row of a file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from commands.options import Json, only_json
from pipelines.lines.overrides import SetOption, with_overrides
from qinglan.terminal import say, say_json

style = typer.Typer(help="The style model: train and judge it, and ask it for a file.", no_args_is_help=True)


@style.command()
def run(
    labelled: Annotated[
        Path, typer.Argument(help="Labelled answers: .json, .jsonl, .csv, .xlsx, or a sample's folder.")
    ],
    profile: Annotated[
        str,
        typer.Option(help="Of pipelines/configs/style: laptop, cpu, one-gpu-24, a100; or a path that ends in .yaml."),
    ] = "laptop",
    labels: Annotated[
        Path | None, typer.Option(help="A mapping file of labels; the plan's five without one.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The run's folder. Again: goes on.")] = Path("runs/style"),
    only: Annotated[str, typer.Option(help="Run only this stage, on the files of the run's folder.")] = "",
    until: Annotated[str, typer.Option(help="Stop after this stage.", show_default="the last")] = "",
    set_: SetOption = None,
    as_json: Json = False,
) -> None:
    """Run the style line here, from labelled answers to a signed release and a small model."""
    from commands.run.end_screen import print_style_summary
    from commands.run.run import run_style
    from pipelines.execute.execution import raise_if_held
    from pipelines.execute.rundir import RunDir
    from pipelines.lines.config import load_style_config

    config = load_style_config(profile, **with_overrides(set_, labelled=labelled, labels=labels))
    record = run_style(config, out, only, until, quiet=as_json)
    say_json(record) if as_json else print_style_summary(RunDir(out), record)
    raise_if_held(record)


@style.command()
def predict(
    file: Annotated[
        Path | None,
        typer.Argument(help="Answers: .jsonl, .json, .csv or .xlsx with text or input, or 问题 and 回答."),
    ] = None,
    answer: Annotated[str, typer.Option(help="In place of a file: one answer.")] = "",
    question: Annotated[str, typer.Option(help="The question that it answers.")] = "",
    model: Annotated[Path, typer.Option(help="The model's folder.")] = Path("runs/style/files/style_model"),
    out: Annotated[Path | None, typer.Option(help="FILE with -style in its name by default.")] = None,
    engine: Annotated[Literal["torch", "onnx"], typer.Option(help="onnx is the int8 form of a distilled model.")] = (
        "torch"
    ),
    as_json: Json = False,
) -> None:
    """Predict the style of every row of a file, or of one answer."""
    from qinglan.errors import ConfigError, DataError
    from qinglan.style.file_prediction import predict_file, target_file
    from qinglan.style.model import StyleModel

    if not model.is_dir():
        raise ConfigError(f"--model {model}: no such folder. `qinglan style run` leaves one in its files.")
    if (file is None) is (not answer):
        raise ConfigError("Give either a file of answers, or one with --answer (and its --question).")
    if file is None:
        from qinglan.style.labels import format_training_text

        [prediction] = StyleModel.load(model, engine).predict([format_training_text(question, answer)])
        probabilities = ", ".join(f"{name} {share:.2f}" for name, share in prediction["probabilities"].items())
        say_json(prediction) if as_json else say(
            f"{prediction['predicted_label']} {prediction['confidence']:.2f}  ({probabilities})"
        )
        return
    target = target_file(file, out)  # before the model is loaded
    with only_json(as_json):
        counts = predict_file(StyleModel.load(model, engine), file, target)
        say(f"{target}: {counts.predicted:,} of {counts.rows:,} rows answered")
    if as_json:
        say_json({**counts._asdict(), "out": str(target)})
    if counts.faults:
        raise DataError(
            f"{counts.rows - counts.predicted} of {counts.rows} rows of {file} have no answer; each says why in "
            f"`fault`. {'; '.join(counts.faults)}"
        )


@style.command()
def blind(
    sheet: Annotated[Path, typer.Argument(help="blind_sample.xlsx of a run, with people's labels filled in.")],
    out: Annotated[Path, typer.Option(help="The run's folder: its key says which row is which.")] = Path(
        "runs/style"
    ),
    as_json: Json = False,
) -> None:
    """Show people's blind labels, and how far they agree with the model and with the data."""
    from components.evaluation.style.blind_sheet import human_labels_markdown, read_human_labels
    from pipelines.execute.recorded_config import check_line
    from pipelines.execute.rundir import ARTIFACT_FILES, RunDir
    from pipelines.lines.style import STYLE

    check_line(STYLE, RunDir(out))
    files = RunDir(out).files
    human_labels = read_human_labels(
        sheet, files / ARTIFACT_FILES["blind_key"], files / ARTIFACT_FILES["predictions"]
    )
    if as_json:
        say_json(human_labels)
    else:
        from qinglan.terminal.console import Console, markdown

        Console().print(markdown(human_labels_markdown(human_labels)))


@style.command()
def demo(
    rows: Annotated[int, typer.Option(min=100, help="Labelled answers in the sample.")] = 4000,
    out: Annotated[Path, typer.Option(help="Where the sample and the run go.")] = Path("runs/demo-style"),
) -> None:
    """The whole style line on this machine: a sample, a run, and a few answers."""
    from commands.demo.demo import run_style_demo

    run_style_demo(out, rows)
