"""Run the command line as `python -m exirkit`."""

from exirkit.cli import main

if __name__ == "__main__":
    main()
