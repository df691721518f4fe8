"""CMake builds by preset, and the package installed from the build tree into .venv."""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from devtool import machine
from devtool.console import ROOT, DevError, run, run_logged, say
from devtool.venv import PYTHON, VENV, ensure_group, ensure_venv, site_packages


def setup() -> None:
    """Debian packages, .venv and what the build needs in it."""
    machine.ensure_packages()
    ensure_venv()
    ensure_group("build")


def build_preset(preset: str) -> Path:
    """Configure if needed and build; the build folder."""
    folder = ROOT / "build" / preset
    environment = {**machine.tool_environment(), "VIRTUAL_ENV": str(VENV)}
    presets = hashlib.sha256((ROOT / "CMakePresets.json").read_bytes()).hexdigest()
    stamp = folder / ".dev-presets"
    if not (folder / "build.ninja").exists() or _read(stamp) != presets:
        say(f"configuring build/{preset}")
        run_logged(f"cmake --preset {preset}", ["cmake", "--preset", preset], env=environment)
        stamp.write_text(presets)
    began = time.monotonic()
    say(f"building build/{preset} ({machine.jobs()} jobs)")
    run(["cmake", "--build", folder, "-j", str(machine.jobs())], env=environment)
    if (seconds := time.monotonic() - began) > 10:
        say(f"built build/{preset} in {seconds:.0f} s")
    return folder


def build_and_install() -> Path:
    """Build the dev preset and install the package from it into .venv; the build folder."""
    setup()
    folder = build_preset("dev")
    stamp = VENV / ".dev-installed"
    wanted = _install_inputs(folder)
    if _read(stamp) != wanted or not (site_packages() / "rgpu").exists():
        say("installing rgpu into .venv")
        stamp.unlink(missing_ok=True)
        _pip_install(folder)
        # Made anew: packaging configures the build tree once more.
        stamp.write_text(_install_inputs(folder))
    return folder


def _pip_install(folder: Path) -> None:
    """Make the wheel in the build tree that is already built, and install it."""
    wheel = make_wheel(
        folder,
        folder / "wheel",
        {
            "cmake.build-type": "RelWithDebInfo",
            "cmake.define.RGPU_TESTS": "ON",
            "cmake.define.RGPU_BENCH": "ON",
            "cmake.define.RGPU_WERROR": "ON",
        },
    )
    run_logged(
        "pip install rgpu",
        [PYTHON, "-m", "pip", "install", "--no-input", "--disable-pip-version-check",
         "--no-deps", "--force-reinstall", wheel],
    )  # fmt: skip


def make_wheel(folder: Path, out: Path, settings: Mapping[str, str]) -> Path:
    """Build the wheel in the build tree `folder`, stripped, as the only one in `out`; its path."""
    for old in out.glob("*.whl"):
        old.unlink()
    settings = {"build-dir": str(folder), "install.strip": "true", **settings}
    run_logged(
        "pip wheel",
        [PYTHON, "-m", "pip", "wheel", "--no-input", "--disable-pip-version-check",
         "--no-build-isolation", "--no-deps", "--wheel-dir", out,
         *(f"--config-settings={name}={value}" for name, value in settings.items()), "."],
        env={
            **machine.tool_environment(),
            "VIRTUAL_ENV": str(VENV),
            "CMAKE_GENERATOR": "Ninja",
            "CMAKE_BUILD_PARALLEL_LEVEL": str(machine.jobs()),
        },
    )  # fmt: skip
    (wheel,) = out.glob("*.whl")
    return wheel


def _install_inputs(folder: Path) -> str:
    """A hash of everything that ends in the installed package."""
    digest = hashlib.sha256()
    sources = [ROOT / "pyproject.toml", ROOT / "README.md"]
    sources += [ROOT / "LICENSE", ROOT / "THIRD_PARTY_NOTICES"]
    for package in ("rgpu", "rgpu_launch"):
        sources += sorted((ROOT / "python" / package).rglob("*.py*"))
    for path in sources:
        if "__pycache__" not in path.parts and path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    built = [*folder.glob("**/_C*.so"), *folder.glob("**/rgpu-opserver*"),
             *folder.glob("**/rgpu-relay*"), *folder.glob("cuda_shim/lib/*.so*")]  # fmt: skip
    files = [path for path in built if path.is_file()]
    if not files:
        raise DevError(f"{folder} holds nothing to install")
    for path in sorted(files):
        digest.update(f"{path}\0{path.stat().st_mtime_ns}\0{path.stat().st_size}".encode())
    return digest.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
