"""The program `qinglan`: Ctrl-C while its commands are still being imported ends it in words, too."""

import signal
import sys


def main() -> None:
    try:
        from pipelines.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the last words are few
        from pipelines.interrupts import interrupted
        from qinglan.terminal import say_error

        error = interrupted(sys.argv[1:])
        say_error(error, "qinglan")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
