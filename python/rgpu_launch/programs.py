"""Where the executables of the installed package are."""

import importlib.util
import os
from pathlib import Path


def find_program(name: str) -> Path:
    """The path of `rgpu-opserver` or `rgpu-relay`; FileNotFoundError if it is missing.

    RGPU_BIN_DIR names another folder to take them from, such as a build tree's.
    """
    folder = os.environ.get("RGPU_BIN_DIR")
    if folder is None:
        # Looked up, not imported: importing rgpu would import torch.
        spec = importlib.util.find_spec("rgpu")
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError("the rgpu package is not installed")
        folder = str(Path(spec.submodule_search_locations[0]) / "bin")
    path = Path(folder) / name
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{name} is not in {folder}: was rgpu built without it?")
    return path
