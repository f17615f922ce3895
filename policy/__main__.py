"""`python -m policy` is the command `policy`."""

from policy.cli import main

if __name__ == "__main__":
    main()
