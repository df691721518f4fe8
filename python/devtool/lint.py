"""./dev lint: clang-format, clang-tidy, each header alone, ruff and mypy."""

import json
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from devtool import build, machine
from devtool.console import ROOT, run, say
from devtool.venv import VENV, ensure_group

_FOLDERS = ("wire", "runtime", "server", "torch_backend", "cuda_shim", "python", "bench", "tests")
_GENERATED = "cuda_shim/generated/"  # Exempt: ./dev codegen --check says whether it is current.
_PYTHON = ("dev", "python", "tests", "bench", "cuda_shim/codegen")


def lint(fix: bool, everything: bool) -> int:
    """Run every linter, over torch code as well if `everything`; an exit status."""
    build.setup()
    ensure_group("test")
    ensure_group("lint")
    # A command line for each file is all that is needed of the build; headers include its output.
    folder = build.build_preset("dev" if everything else "asan")
    failed = [
        name
        for name, passed in (
            ("clang-format", _clang_format(fix)),
            ("headers alone", _headers_alone(folder)),
            ("clang-tidy", _clang_tidy(folder)),
            ("ruff", _ruff(fix)),
            ("mypy", _mypy()),
        )
        if not passed
    ]
    say(f"lint: {', '.join(failed)} failed" if failed else "lint: nothing to complain about")
    return 1 if failed else 0


def _sources(*suffixes: str) -> list[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *_FOLDERS],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    kept = [n for n in tracked if n.endswith(suffixes) and not n.startswith(_GENERATED)]
    return [ROOT / name for name in kept if (ROOT / name).exists()]


def _tool(name: str) -> Path:
    return VENV / "bin" / name


def _clang_format(fix: bool) -> bool:
    say("clang-format")
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]
    files = _sources(".h", ".cc")
    return not files or run([_tool("clang-format"), *mode, *files], check=False) == 0


def _compile_commands(folder: Path) -> dict[Path, list[str]]:
    entries = json.loads((folder / "compile_commands.json").read_text())
    return {Path(entry["file"]): shlex.split(entry["command"]) for entry in entries}


def _headers_alone(folder: Path) -> bool:
    """Compile each header by itself, with the flags of a source beside it."""
    say("each header alone")
    commands = _compile_commands(folder)

    def check(header: Path) -> bool:
        beside = [f for f in commands if f.parent == header.parent]
        if not beside:
            return True  # Not in this build.
        same_name = header.with_suffix(".cc")
        command = commands[same_name if same_name in commands else beside[0]]
        flags = [flag for flag in command[: command.index("-o")] if not flag.endswith("ccache")]
        # Through standard input: `#pragma once` in the main file is a warning.
        compiler = subprocess.run(
            [*flags, "-fsyntax-only", "-x", "c++", "-"],
            cwd=folder,
            input=f'#include "{header.relative_to(ROOT)}"\n',
            text=True,
            check=False,
        )
        return compiler.returncode == 0

    with ThreadPoolExecutor(machine.jobs()) as pool:
        return all(list(pool.map(check, _sources(".h"))))


def _clang_tidy(folder: Path) -> bool:
    say("clang-tidy")
    files = [path for path in _compile_commands(folder) if path in set(_sources(".cc"))]

    def check(path: Path) -> bool:
        return run([_tool("clang-tidy"), "-p", folder, "--quiet", path], check=False) == 0

    with ThreadPoolExecutor(machine.jobs()) as pool:
        return all(list(pool.map(check, files)))


def _ruff(fix: bool) -> bool:
    say("ruff")
    checked = run([_tool("ruff"), "check", *(["--fix"] if fix else []), *_PYTHON], check=False)
    mode = [] if fix else ["--check"]
    formatted = run([_tool("ruff"), "format", *mode, *_PYTHON], check=False)
    return checked == 0 and formatted == 0


def _mypy() -> bool:
    say("mypy")
    packages = [
        *("python/devtool", "python/rgpu_launch", "python/demo", "python/demo_cuda", "python/rgpu"),
        "cuda_shim/codegen",
    ]
    return all(
        run([_tool("mypy"), "--python-executable", _tool("python"), package], check=False) == 0
        for package in packages
    )
