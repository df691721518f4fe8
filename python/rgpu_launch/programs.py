"""Where the executables of the installed package are, and what it was built as."""

import importlib.util
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BuildInfo:
    """What must agree between a client and a server."""

    version: str
    protocol: int
    torch: str  # Its major.minor.

    def __str__(self) -> str:
        """As an error message names it."""
        return f"rgpu {self.version} (protocol {self.protocol}) for PyTorch {self.torch}"


def major_minor(version: str) -> str:
    """The first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def build_info() -> BuildInfo:
    """What the installed package was built as; FileNotFoundError if there is none."""
    build = runpy.run_path(str(package_folder() / "_build.py"))
    return BuildInfo(
        build["VERSION"], build["PROTOCOL_VERSION"], major_minor(build["TORCH_VERSION"])
    )


def package_folder() -> Path:
    """Where the rgpu package is; FileNotFoundError if it is not installed."""
    # Looked up, not imported: importing rgpu would import torch.
    spec = importlib.util.find_spec("rgpu")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the rgpu package is not installed")
    return Path(spec.submodule_search_locations[0])


def find_program(name: str) -> Path:
    """The path of `rgpu-opserver` or `rgpu-relay`; FileNotFoundError if it is missing.

    RGPU_BIN_DIR names another folder to take them from, such as a build tree's.
    """
    folder = os.environ.get("RGPU_BIN_DIR") or package_folder() / "bin"
    path = Path(folder) / name
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{name} is not in {folder}: was rgpu built without it?")
    return path


def this_compiler() -> list[str]:
    """Options of rgpu-opserver: this Python compiles its graphs, if it can."""
    if importlib.util.find_spec("rgpu_compile") is None:
        return []
    return ["--compiler", sys.executable]
