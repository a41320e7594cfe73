"""`ompbind` and `python -m ompbind`."""

import gc


def start() -> None:
    """Run the command line; modules load without anybody looking for garbage in them, which takes a while."""
    gc.disable()
    from ompbind.cli.main import main  # late: after that

    main()


if __name__ == "__main__":
    start()
