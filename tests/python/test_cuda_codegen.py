"""The generated part of the CUDA shim: that it is current, and that the libraries export it all."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODEGEN = ROOT / "cuda_shim" / "codegen"
LIBRARIES = ("libcuda", "libcudart", "libcublas", "libcublasLt", "libcudnn", "libnvidia-ml")
# What its own code says for "not supported".
CODES = dict(zip(LIBRARIES, (801, 801, 15, 15, 3000, 3), strict=True))


def model(library: str) -> dict:
    return json.loads((CODEGEN / "api" / f"{library}.json").read_text())


def library_folder() -> Path:
    """The libraries of the installed package, or else of the newest build tree."""
    spec = importlib.util.find_spec("rgpu")
    packages = (spec.submodule_search_locations or ()) if spec else ()
    for place in packages:
        if (Path(place) / "lib" / "cuda" / "librgpu_cuda.so").exists():
            return Path(place) / "lib" / "cuda"
    built = sorted(
        (ROOT / "build").glob("*/cuda_shim/lib/librgpu_cuda.so"), key=lambda p: p.stat().st_mtime
    )
    assert built, "neither the installed package nor a build tree holds librgpu_cuda.so"
    return built[-1].parent


def exported(path: Path) -> dict[str, tuple[str, str]]:
    """(nm's letter, version node) by name."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True
    ).stdout
    found = {}
    for line in listing.splitlines():
        kind, symbol = line.split()[-2:]
        name, _, node = symbol.partition("@@")
        if kind != "A":  # The version node itself.
            found[name] = (kind, node)
    return found


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_what_is_committed_is_what_the_model_generates():
    checked = subprocess.run(
        [sys.executable, CODEGEN / "generate.py", "--check"], capture_output=True, text=True
    )
    assert checked.stderr == ""
    assert checked.returncode == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_exports_exactly_the_real_ones_list(library):
    entry = model(library)
    found = exported(library_folder() / entry["soname"])
    assert sorted(found) == sorted(entry["exports"])
    assert {node for _, node in found.values()} == {entry["node"]}


def test_the_real_libraries_have_as_many_exports_as_were_counted_by_hand():
    assert [len(model(name)["exports"]) for name in LIBRARIES] == [672, 422, 756, 184, 224, 398]
    functions = model("cuda")["functions"]
    for header, count in (("cuda.h", 449), ("cuda_runtime_api.h", 310)):
        assert sum(f["public"] for f in functions if f["header"] == header) == count


def test_every_export_has_one_slot_and_the_first_ones_are_where_they_were():
    slots = [tuple(row) for row in model("slots")["slots"]]
    assert len(set(slots)) == len(slots)
    assert set(slots) == {(name, f) for name in LIBRARIES for f in model(name)["exports"]}
    # A slot is a function's number for ever: new ones are appended.
    assert slots.index(("libcuda", "cuMemAlloc_v2")) == 338
    assert slots.index(("libnvidia-ml", "nvmlVgpuTypeGetResolution")) == 2655


def test_every_address_that_can_be_asked_for_is_an_export():
    exports = set(model("libcuda")["exports"])
    rows = model("cuda")["proc_addresses"]
    assert {symbol for *_, symbol in rows} == exports
    assert len({(name, version, variant) for name, version, variant, _ in rows}) == len(rows)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_function_without_an_implementation_names_itself_once(library, tmp_path):
    entry = model(library)
    implemented = exported(library_folder() / "librgpu_cuda.so")
    returns_a_code = {
        f["name"]
        for f in [*model("cuda")["functions"], *entry.get("functions", [])]
        if f["returns"].endswith(("_t", "CUresult")) and f["returns"] != "size_t"
    }
    missing = [
        n for n in entry["exports"] if f"rgpu_{n}" not in implemented and n in returns_a_code
    ]
    if not missing:
        pytest.skip(f"every function of {library} is implemented")
    log = tmp_path / "calls"
    program = f"""
import ctypes
library = ctypes.CDLL({str(library_folder() / entry["soname"])!r})
print(library.{missing[0]}(), library.{missing[0]}())
"""
    ran = run_python(program, RGPU_CUDA_CALL_LOG=str(log))
    assert ran.stdout.split() == [str(CODES[library])] * 2
    assert ran.stderr == f"rgpu: {missing[0]} ({library}) is not supported\n"
    assert log.read_text() == f"{missing[0]}\n"


def test_the_model_holds_no_text_of_the_headers():
    for path in (CODEGEN / "api").glob("*.json"):
        text = path.read_text()
        for comment in ("/*", "\\\\param", "Copyright", "\\\\return", "/**<"):
            assert comment not in text, f"{path.name} holds {comment}"


@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang, which has every target")
@pytest.mark.parametrize("target", ["x86_64-linux-gnu", "aarch64-linux-gnu"])
def test_the_trampolines_assemble_for_both_processors(target, tmp_path):
    for name in (*LIBRARIES, "driver_entries"):
        source = ROOT / "cuda_shim" / "generated" / f"{name}.S"
        output = tmp_path / f"{name}.o"
        subprocess.run(["clang", f"--target={target}", "-c", source, "-o", output], check=True)
        assert output.stat().st_size > 0


def test_a_generated_function_is_implemented_only_if_what_it_calls_is():
    program = f"""
import sys
sys.path.insert(0, {str(CODEGEN)!r})
import coverage, model
names = ("cuInit", "cuEventRecord", "cuEventRecord_ptsz", "cuStreamQuery_ptsz")
defined = dict.fromkeys(names, "T")
defined |= dict.fromkeys(("cudaEventRecord", "cudaEventQuery", "cuEventDestroy"), "W")
called = {{"cudaEventRecord", "cudaEventQuery", "cuInit"}}
found = coverage.Coverage(model.Model.load(), called, defined)
for name in ("cuInit", "cudaEventRecord", "cudaEventQuery", "cuEventRecord_ptsz",
             "cuStreamQuery_ptsz", "cuEventDestroy", "cuCtxCreate_v4"):
    print(name, found.state(name) or "no")
"""
    assert run_python(program).stdout.splitlines() == [
        "cuInit tested",
        "cudaEventRecord tested",
        "cudaEventQuery no",  # Called, but refused: cuEventQuery is missing.
        "cuEventRecord_ptsz implemented",
        "cuStreamQuery_ptsz no",
        "cuEventDestroy no",
        "cuCtxCreate_v4 no",
    ]
