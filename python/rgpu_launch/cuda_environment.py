"""The environment in which an unmodified CUDA program finds rgpu's libraries instead of NVIDIA's.

LD_PRELOAD   redirects the CUDA Runtime that nvcc linked statically into the program
LD_AUDIT     does so for libraries opened later, and gives ours for the vendor's names
LD_LIBRARY_PATH  a folder with libcuda.so, for those who open it by name

Programs that use no CUDA do not notice; none of the libraries does anything until it is called.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from rgpu_launch.programs import package_folder

PRELOAD, AUDIT = "librgpu_cuda_preload.so", "librgpu_cuda_audit.so"
_SEARCH = "LD_LIBRARY_PATH"


def library_folder() -> Path | None:
    """The folder of rgpu's CUDA libraries; None where there are none, as on macOS.

    RGPU_CUDA_LIB_DIR names another one, such as a build tree's cuda_shim/lib.
    """
    named = os.environ.get("RGPU_CUDA_LIB_DIR")
    try:
        folder = Path(named).absolute() if named else package_folder() / "lib" / "cuda"
    except FileNotFoundError:
        return None
    return folder if (folder / PRELOAD).is_file() else None


def with_cuda(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a program; as it was where there are no libraries."""
    changed = without_cuda(environment)
    folder = library_folder()
    if folder is None or ":" in str(folder):  # No path in these lists can have a colon,
        return changed
    has_space = any(letter.isspace() for letter in str(folder))  # nor LD_PRELOAD a space:
    preload = PRELOAD if has_space else str(folder / PRELOAD)  # it is searched for then.
    _prepend(changed, "LD_PRELOAD", preload)
    if (folder / AUDIT).is_file():
        _prepend(changed, "LD_AUDIT", str(folder / AUDIT))
    _prepend(changed, _SEARCH, str(folder))
    return changed


def without_cuda(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for a server, which may want the real driver: without what with_cuda() set.

    It is there when rgpu-run was started by a program of another rgpu-run, such as a shell.
    """
    changed = dict(environment)
    ours = {
        str(Path(entry).parent)
        for entry in environment.get("LD_AUDIT", "").split(":")
        if Path(entry).name == AUDIT
    }
    for name in ("LD_PRELOAD", "LD_AUDIT", _SEARCH):
        if name not in environment:
            continue
        entries = environment[name].split(":")
        kept = [
            entry
            for entry in entries
            if Path(entry).name not in (PRELOAD, AUDIT) and not (name == _SEARCH and entry in ours)
        ]
        if len(kept) == len(entries):
            continue
        if kept:
            changed[name] = ":".join(kept)
        else:
            del changed[name]
    return changed


def _prepend(environment: dict[str, str], name: str, entry: str) -> None:
    # An empty entry of a search path is the current folder: none is added.
    before = environment.get(name)
    environment[name] = f"{entry}:{before}" if before else entry
