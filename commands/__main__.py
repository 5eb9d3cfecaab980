"""Entry point of `qinglan`. Ctrl-C while the commands are still being imported also ends with a message instead of a
traceback."""

import signal
import sys


def main() -> None:
    pressed = _hear_ctrl_c_later()
    from commands.cli import main as run_command
    from pipelines.execute.interrupts import interrupted
    from qinglan.terminal import say_error

    if pressed is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if pressed:
            raise KeyboardInterrupt
        run_command()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt the message
        error = interrupted(sys.argv[1:])
        say_error(error, "qinglan")
        sys.exit(error.exit_code)


def _hear_ctrl_c_later() -> list[bool] | None:
    """Record Ctrl-C in the returned list while the commands are imported; None if the process ignores Ctrl-C.

    A KeyboardInterrupt in the middle of an import would leave a half-imported library in sys.modules, and the error
    message may need that library.
    """
    # A shell starts background jobs with SIGINT ignored; that must stay so.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    pressed: list[bool] = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    return pressed


if __name__ == "__main__":
    main()
