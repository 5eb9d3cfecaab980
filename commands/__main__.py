"""Entry point of `qinglan`."""

from commands.cli import main

if __name__ == "__main__":
    main()
