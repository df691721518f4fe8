"""The console script `rgpu-opserver`: becomes the packaged executable of that name."""

import os
import sys

from rgpu_launch.programs import find_program


def main() -> None:
    """Replace this process by the server, with the same arguments."""
    try:
        program = find_program("rgpu-opserver")
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"rgpu-opserver: {error}")
