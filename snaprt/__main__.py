"""`python -m snaprt`: the command line, for where the `snaprt` script isn't on the path."""

from snaprt.cli import main

if __name__ == "__main__":
    main()
