"""python -m standins.reranker --port 8200      prints {"reranker": "http://127.0.0.1:8200"}"""

import sys

from qinglan.errors import QinglanError
from qinglan.terminal import say_error
from standins.behaviour_options import options_parser, read_behaviour, serve
from standins.reranker.app import FakeReranker, create_app
from standins.reranker.behaviour import Behaviour


def main() -> None:
    arguments = options_parser(
        "python -m standins.reranker", "The stand-in for rerankers.", Behaviour, 8200
    ).parse_args()
    try:
        behaviour = read_behaviour(arguments, Behaviour, "stand-in reranker")
        serve("reranker", create_app(FakeReranker(behaviour)), arguments)
    except QinglanError as error:
        say_error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
