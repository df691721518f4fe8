"""The wheel: what it links, what it says of itself, and that it runs where only torch is.

The cheap tests take the wheel that ./dev installed, which comes out of the same rules; the slow one
makes the wheel for other machines.
"""

import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from bare_venv import make_bare_venv, run_installed

ROOT = Path(__file__).parents[2]
# The path is taken back at once: the sources in python/ would hide the installed rgpu.
sys.path.insert(0, str(ROOT / "python"))
from devtool import wheel as tool  # noqa: E402 - the path comes first

sys.path.remove(str(ROOT / "python"))

# glibc, GCC's runtime, PyTorch: nothing else is sure to be there.
ALLOWED = {
    "libc.so.6",
    "libm.so.6",
    "ld-linux-x86-64.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libc10.so",
    "libtorch.so",
    "libtorch_cpu.so",
    "libtorch_python.so",
}
CUDA_LIBRARIES = {
    "libcuda.so",
    "libcuda.so.1",
    "libcudart.so.13",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libnvidia-ml.so.1",
    "librgpu_cuda.so",
    "librgpu_cuda_audit.so",
    "librgpu_cuda_preload.so",
}
README = (ROOT / "README.md").read_text()
FIRST_PROGRAM = re.search(r"^```\n(import torch, rgpu\n.*?)^```$", README, re.DOTALL | re.M)[1]


@pytest.fixture(scope="module")
def wheel():
    """The wheel that ./dev installed."""
    origin = metadata.distribution("rgpu").read_text("direct_url.json")
    return Path(unquote(urlsplit(json.loads(origin)["url"]).path))


def check_wheel(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = [name for name in archive.namelist() if not name.endswith("/")]
    files = tool.elf_files(folder)
    cuda = {path.name for path in files if path.parent == folder / "rgpu" / "lib" / "cuda"}
    assert cuda >= CUDA_LIBRARIES
    assert [re.sub(r"\..*", "", path.name) for path in files if path.name not in cuda] == [
        "_C",
        "rgpu-opserver",
        "rgpu-relay",
        "_graph",
    ]
    for path in files:
        needed = set(tool.needed_libraries(path))
        if path.name in cuda:
            assert needed <= ALLOWED | cuda, path.name
        else:
            assert "libc.so.6" in needed
            assert needed <= ALLOWED, path.name
        sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True).stdout
        assert ".dynsym" in sections
        assert ".symtab" not in sections, f"{path.name} is not stripped"
    licenses = {Path(name).name for name in names if ".dist-info/licenses/" in name}
    assert licenses == {"LICENSE", "THIRD_PARTY_NOTICES"}
    assert not [name for name in names if name.endswith((".in", ".cc", ".h"))]
    (name,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    said = message_from_bytes((folder / name).read_bytes())
    major, minor = torch.__version__.split(".")[:2]
    assert said["Requires-Dist"] == f"torch=={major}.{minor}.*"
    assert said["License-Expression"] == "Apache-2.0"


def install_and_run(wheel: Path, folder: Path) -> str:
    python = make_bare_venv(folder / "venv")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-index", wheel],
        check=True,
        capture_output=True,
    )
    return run_installed(python, FIRST_PROGRAM, folder)


def test_it_links_only_what_every_machine_has(wheel, tmp_path):
    check_wheel(wheel, tmp_path)
    assert tool.foreign_libraries(wheel) == []


def test_a_library_that_other_machines_lack_is_named(tmp_path):
    path = tmp_path / "rgpu-0.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write("/usr/bin/readelf", "rgpu/bin/tool")  # It reads compressed sections.
    assert "tool needs libz.so.1" in tool.foreign_libraries(path)
    assert "tool needs libc.so.6" not in tool.foreign_libraries(path)


def test_it_runs_in_an_environment_of_its_own(wheel, tmp_path):
    assert install_and_run(wheel, tmp_path) == "8.0\n"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_dev_wheel_makes_one_for_other_machines(tmp_path):
    subprocess.run([sys.executable, ROOT / "dev", "wheel"], check=True, stdin=subprocess.DEVNULL)
    (made,) = (ROOT / "dist").glob("*.whl")
    tag = re.fullmatch(r"rgpu-[\d.]+-(cp\d+)-\1-manylinux_2_(\d+)_x86_64\.whl", made.name)
    assert tag, made.name
    assert int(tag[2]) >= 28  # glibc 2.28 is what torch itself needs.
    check_wheel(made, tmp_path / "content")
    assert install_and_run(made, tmp_path) == "8.0\n"


def test_dependencies_are_the_pytorch_it_is_built_against(monkeypatch):
    path = ROOT / "python" / "devtool" / "torch_requirement.py"
    spec = importlib.util.spec_from_file_location("torch_requirement", path)
    provider = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(provider)
    monkeypatch.setattr(provider, "version", lambda _: "2.14.1+cu130")
    assert provider.dynamic_metadata({"range": ">=1"}, {}) == {"dependencies": ["torch==2.14.*"]}

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(provider, "version", missing)
    assert provider.dynamic_metadata({"range": ">=1"}, {}) == {"dependencies": ["torch>=1"]}
