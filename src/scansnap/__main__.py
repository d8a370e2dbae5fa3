"""`python -m scansnap`, for launchers that start modules, such as `torchrun -m scansnap text train ...`."""

from scansnap.cli.app import main

if __name__ == "__main__":
    main()
