"""The console script `rgpu-opserver`: becomes the packaged executable of that name."""

import os
import sys

from rgpu_launch.cuda_environment import without_cuda
from rgpu_launch.programs import find_program, this_compiler


def main() -> None:
    """Replace this process by the server, with the same arguments, and this Python as compiler."""
    given = any(argument.partition("=")[0] == "--compiler" for argument in sys.argv)
    try:
        program = find_program("rgpu-opserver")
        compiler = [] if given else this_compiler()
        command = [str(program), *compiler, *sys.argv[1:]]
        os.execve(program, command, without_cuda(os.environ))
    except OSError as error:
        sys.exit(f"rgpu-opserver: {error}")
