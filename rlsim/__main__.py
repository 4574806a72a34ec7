"""`python -m rlsim`: the same as the `rlsim` command."""

from rlsim.cli import main

if __name__ == "__main__":
    main()
