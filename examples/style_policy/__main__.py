"""python -m examples.style_policy RUN: a responder learns a manner, with a style run's model as its reward.

RUN is the folder of a style run: its rows, its style model and its base model are taken. The responder, its log and
its curve go to RUN/style_policy, or to --out.
"""

import argparse
from pathlib import Path

from examples.style_policy.config import StylePolicyConfig
from examples.style_policy.stage import style_policy
from qinglan.config import load_yaml
from qinglan.pages.curves import write_curve_page

LAPTOP = Path(__file__).parent / "laptop.yaml"
INPUTS = ("style_rows", "style_model", "base_model")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.style_policy", description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a style run, such as runs/demo-style/run")
    parser.add_argument("--out", type=Path, help="where the responder goes; RUN/style_policy by default")
    parser.add_argument("--settings", type=Path, default=LAPTOP, help="a YAML file; laptop.yaml by default")
    arguments = parser.parse_args()
    rows, style_model, base = (arguments.run / "files" / name for name in INPUTS)
    if missing := [path for path in (rows, style_model, base) if not path.exists()]:
        parser.error(f"{missing[0]} is not there. `qinglan style run` makes it, `make demo-style` a small one.")
    out = arguments.out or arguments.run / "style_policy"
    config = StylePolicyConfig.parse(load_yaml(arguments.settings), str(arguments.settings))
    counts = style_policy(rows, style_model, base, out / "policy_model", out / "policy_log", config)
    write_curve_page(out / "policy_log", out / "policy_curve.html")
    for name, value in counts._asdict().items():
        print(f"{name}: {value:g}")
    print(f"{out}: policy_model, policy_log, policy_curve.html")


if __name__ == "__main__":
    main()
