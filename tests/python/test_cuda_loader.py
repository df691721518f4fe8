"""Static CUDA Runtimes are redirected before anything runs, and other programs notice nothing.

The libraries of the loader are the installed ones; behind them stand test doubles of libcudart and
libcuda (tests/cuda/loader), so that what is tested is the way there. A program prints what it saw.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cuda_toolkit
import pytest
from rgpu_launch.cuda_environment import AUDIT, PRELOAD, library_folder

nvcc, toolkit_folder = cuda_toolkit.nvcc, cuda_toolkit.library_folder

ROOT = Path(__file__).resolve().parents[2]
DOUBLES = ROOT / "tests" / "cuda" / "loader"
LOADER = ROOT / "cuda_shim" / "loader"

SAXPY = r"""
#include <cstdio>
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" int go() {
  int count = 0;
  int error = cudaGetDeviceCount(&count);
  float *x = nullptr, *y = nullptr;
  cudaMallocManaged(&x, 400);
  cudaMallocManaged(&y, 400);
  if (x == nullptr || y == nullptr) {
    printf("error %d\n", error);
    return 3;
  }
  for (int i = 0; i < 100; ++i) x[i] = float(i), y[i] = 1;
  saxpy<<<1, 100>>>(100, 2.f, x, y);
  printf("devices %d, error %d, y[99] = %g\n", count, (int)cudaDeviceSynchronize(), y[99]);
  fflush(stdout);
  return 0;
}
"""
MAIN = 'extern "C" int go();\nint main() { return go(); }\n'
SAW = """\
registered a fatbin, magic 466243b1
registered _Z5saxpyifPKfPf
launched 1 x 100
devices 3, error 0, y[99] = 199
unregistered
"""


@pytest.fixture(scope="module")
def doubles(tmp_path_factory) -> Path:
    """A folder with the loader's libraries and, by the vendor's names, the doubles."""
    folder = tmp_path_factory.mktemp("doubles")
    installed = library_folder()
    assert installed is not None, "rgpu was built without its CUDA libraries"
    for name in (PRELOAD, AUDIT):
        shutil.copy(installed / name, folder)
    shared = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{ROOT}"]
    cudart = [*shared, "-Wl,-soname,libcudart.so.13", str(DOUBLES / "double_cudart.cc")]
    subprocess.run([*cudart, "-o", str(folder / "libcudart.so.13")], check=True)
    names = "unredirected_runtime elf_file program_file static_runtime resolver machine_code"
    cuda = [*shared, "-Wl,-soname,libcuda.so.1", str(DOUBLES / "double_libcuda.cc")]
    cuda += [str(LOADER / f"{name}.cc") for name in names.split()]
    subprocess.run([*cuda, "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


@pytest.fixture
def build(nvcc, tmp_path):
    """`build(name, source, *options)`: compiled by nvcc, with the static runtime."""

    def compile_it(name: str, source: str, *options: str) -> Path:
        (tmp_path / f"{name}.cu").write_text(source)
        image = ["-gencode", "arch=compute_75,code=compute_75"]
        command = [str(nvcc), *image, str(tmp_path / f"{name}.cu"), "-o", str(tmp_path / name)]
        subprocess.run([*command, *options], check=True, cwd=tmp_path, capture_output=True)
        return tmp_path / name

    return compile_it


@pytest.fixture
def library(build) -> Path:
    """A shared library with a kernel and the static runtime."""
    return build("libsaxpy.so", SAXPY, "-shared", "-Xcompiler", "-fPIC")


def run(doubles: Path, *command: str | Path, without: str = "") -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_PRELOAD": str(doubles / PRELOAD),
        "LD_AUDIT": str(doubles / AUDIT),
        "LD_LIBRARY_PATH": str(doubles),
    }
    environment.pop(without, None)
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def outcome(result: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("options", [[], ["-Xcompiler", "-fPIE", "-Xlinker", "-pie"],
                                     ["-Xcompiler", "-fno-pie,-no-pie"], ["-Xlinker", "-z,now"],
                                     ["-Xcompiler", "-rdynamic"]])  # fmt: skip
def test_a_static_program_reaches_ours_and_its_file_is_unchanged(build, doubles, options):
    program = build("saxpy", SAXPY + MAIN, *options)
    before = hashlib.sha256(program.read_bytes()).hexdigest()
    assert outcome(run(doubles, program)) == (0, SAW, "")
    assert hashlib.sha256(program.read_bytes()).hexdigest() == before


def test_the_program_needs_the_preload_library_alone(build, doubles):
    program = build("saxpy", SAXPY + MAIN)
    assert outcome(run(doubles, program, without="LD_AUDIT")) == (0, SAW, "")


def test_a_program_that_is_started_through_the_loader_of_libraries(build, doubles):
    # Then /proc/self/exe is the loader.
    program = build("saxpy", SAXPY + MAIN)
    header = subprocess.run(
        ["readelf", "-lW", str(program)], capture_output=True, text=True, check=True
    ).stdout
    loader = re.search(r"interpreter: (\S+)\]", header)[1]
    assert outcome(run(doubles, loader, program)) == (0, SAW, "")


def test_debug_information_is_not_needed(build, doubles):
    program = build("saxpy", SAXPY + MAIN)
    subprocess.run(["strip", "--strip-debug", str(program)], check=True)
    assert outcome(run(doubles, program)) == (0, SAW, "")


def test_constructors_of_the_program_come_too_late_to_notice(build, doubles):
    early = """
    struct Early {
      int count = 0;
      __attribute__((noinline)) Early() { cudaGetDeviceCount(&count); }
    };
    static Early early __attribute__((init_priority(101)));
    int main() { printf("%d\\n", early.count); return 0; }
    """
    result = run(doubles, build("early", SAXPY + early))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\n3\n" in result.stdout


def test_a_library_that_is_linked_to_the_program(build, doubles, library, tmp_path):
    (tmp_path / "uses.cc").write_text(MAIN)
    program = tmp_path / "uses"
    link = [f"-L{tmp_path}", "-lsaxpy", f"-Wl,-rpath={tmp_path}"]
    subprocess.run(["g++", str(tmp_path / "uses.cc"), *link, "-o", str(program)], check=True)
    assert outcome(run(doubles, program)) == (0, SAW, "")
    assert outcome(run(doubles, program, without="LD_AUDIT")) == (0, SAW, "")


def test_a_library_that_python_opens(doubles, library):
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(library)!r}).go())"
    assert outcome(run(doubles, sys.executable, "-c", code)) == (0, SAW, "")


def test_two_libraries_that_are_opened_have_thunks_of_their_own(build, doubles, library, tmp_path):
    other = tmp_path / "other.so"
    shutil.copy(library, other)
    code = f"""
import ctypes
assert ctypes.CDLL({str(library)!r}).go() == 0
assert ctypes.CDLL({str(other)!r}).go() == 0
"""
    result = run(doubles, sys.executable, "-c", code)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("devices 3, error 0, y[99] = 199") == 2


def test_functions_of_the_programs_own_are_left_alone(build, doubles):
    own = """
    extern "C" int cudaCheck(int code) { return code + 1; }
    extern "C" int __cudaOwn(int code) { return code + 2; }
    int main() { printf("%d %d\\n", cudaCheck(1), __cudaOwn(1)); return 0; }
    """
    result = run(doubles, build("own", SAXPY + own))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\n2 3\n" in result.stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads instructions of x86-64")
@pytest.mark.parametrize("options", [[], ["-Xcompiler", "-fno-pie,-no-pie"]])
def test_thunks_lie_beside_the_program(build, doubles, options):
    # Then a jump has five bytes, and the shortest function of the runtime has room for it.
    bytes_ = """
    int main() {
      const auto* code = reinterpret_cast<const unsigned char*>(&cudaGetDeviceCount);
      printf("%02x\\n", code[0]);
      return 0;
    }
    """
    assert "\ne9\n" in run(doubles, build("bytes", SAXPY + bytes_, *options)).stdout


def test_a_function_shorter_than_a_jump(build, doubles):
    short = """
    extern "C" int __cudaGetProcAddress();
    int main() { printf("%d\\n", __cudaGetProcAddress()); return 0; }
    """
    assert "\n3\n" in run(doubles, build("short", SAXPY + short)).stdout


def test_many_threads_make_the_first_call(build, doubles):
    threads = """
    #include <atomic>
    #include <thread>
    #include <vector>
    int main() {
      std::atomic<int> ready{0}, sum{0};
      std::vector<std::thread> threads;
      for (int i = 0; i < 16; ++i) {
        threads.emplace_back([&] {
          for (++ready; ready < 16;) std::this_thread::yield();
          int count = 0;
          cudaGetDeviceCount(&count);
          sum += count;
        });
      }
      for (auto& thread : threads) thread.join();
      printf("%d\\n", sum.load());
      return 0;
    }
    """
    assert "\n48\n" in run(doubles, build("threads", SAXPY + threads)).stdout


def test_a_program_with_the_runtime_linked_dynamically_gets_ours(build, doubles):
    # An RPATH comes before LD_LIBRARY_PATH: this is how PyTorch finds NVIDIA's libraries.
    where = ["-Xlinker", f"-rpath={toolkit_folder()}", "-Xlinker", "--disable-new-dtags"]
    program = build("shared", SAXPY + MAIN, "-cudart", "shared", f"-L{toolkit_folder()}", *where)
    result = run(doubles, program)
    assert (result.returncode, result.stdout) == (0, SAW)


@pytest.mark.parametrize("name", ["libcudart.so.13", "FOLDER/libcudart.so.13"])
def test_the_vendors_names_lead_to_ours(nvcc, doubles, name):
    path = name.replace("FOLDER", str(toolkit_folder()))
    code = f"""
import ctypes
count = ctypes.c_int()
ctypes.CDLL({path!r}).cudaGetDeviceCount(ctypes.byref(count))
print(count.value, [l for l in open("/proc/self/maps") if "libcudart" in l][0].split()[-1])
"""
    result = run(doubles, sys.executable, "-c", code)
    assert outcome(result) == (0, f"3 {doubles}/libcudart.so.13\n", "")


def test_a_stripped_program_ends_with_a_line_that_says_what_to_do(build, doubles):
    said_first = 'int main() { printf("begun\\n"); return go(); }\n'
    program = build("saxpy", SAXPY + said_first, "-Xlinker", "-s")
    status, output, error = outcome(run(doubles, program))
    assert (status, output) == (1, "begun\n")
    assert error == (
        f"rgpu: {program}: its CUDA Runtime is linked statically and its symbols are stripped: "
        "link it with -cudart shared, or without -s\n"
    )


def test_without_rgpu_run_the_line_says_so(build, doubles):
    program = build("saxpy", SAXPY + MAIN)
    result = run(doubles, program, without="LD_PRELOAD")
    assert result.returncode == 1
    assert re.fullmatch(r"rgpu: \S+/saxpy: .*: start it with rgpu-run\n", result.stderr)


def test_a_stripped_library_is_named_once_and_the_program_goes_on(doubles, library):
    subprocess.run(["strip", str(library)], check=True)
    code = f"import ctypes; go = ctypes.CDLL({str(library)!r}).go; go(); go(); print('on')"
    status, output, error = outcome(run(doubles, sys.executable, "-c", code))
    # Python's own output and C's are buffered apart.
    assert (status, sorted(output.splitlines())) == (0, ["error 801", "error 801", "on"])
    assert error.startswith(f"rgpu: {library}: its CUDA Runtime is linked statically")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "echo said"],
        ["sh", "-c", "bash -c 'echo said'"],
        [sys.executable, "-c", "import ctypes, ssl, subprocess; print('said')"],
        [sys.executable, "-c", "import multiprocessing as m\n"
         "p = m.get_context('spawn').Process(target=print, args=('said',)); p.start(); p.join()"],
    ],
)  # fmt: skip
def test_other_programs_notice_nothing(doubles, command):
    assert outcome(run(doubles, *command)) == (0, "said\n", "")


@pytest.mark.parametrize("name", [PRELOAD, AUDIT])
def test_the_libraries_bring_nothing_along(doubles, name):
    # They are loaded into every program.
    header = subprocess.run(
        ["readelf", "-dW", str(doubles / name)], capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", header) == ["libc.so.6"]
