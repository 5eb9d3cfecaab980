"""The program `qinglan`: Ctrl-C while its commands are still being imported ends it in words, too."""

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
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the last words are few
        error = interrupted(sys.argv[1:])
        say_error(error, "qinglan")
        sys.exit(error.exit_code)


def _hear_ctrl_c_later() -> list[bool] | None:
    """Note Ctrl-C in the list: a library whose import it breaks off cannot be imported again for the last words.

    None where Ctrl-C is ignored, as in a shell's background.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return None
    pressed: list[bool] = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    return pressed


if __name__ == "__main__":
    main()
