"""libcuda.so.1 by ctypes, and how a test of it runs: each in a process of its own.

`cu.cuMemAlloc_v2(u64, 256)` calls the exported function: an argument that is a type is an output
and comes back (several as a tuple); a code other than 0 raises CudaError. `refused(code, cu.f, …)`
wants exactly that code. No third-party package, and nothing of pytest: children start fast.
"""

import ctypes
import functools
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from cuda_driver_signatures import SIGNATURES, Location

u64, u32, i32, f32, f64 = (
    ctypes.c_uint64,
    ctypes.c_uint32,
    ctypes.c_int32,
    ctypes.c_float,
    ctypes.c_double,
)
pointer = ctypes.c_void_p  # Handles as well.
text = ctypes.c_char_p
FIXTURES = Path(__file__).resolve().parents[1] / "cuda" / "fixtures"
_REPOSITORY = Path(__file__).resolve().parents[2]
_LETTERS = {
    "p": ctypes.c_void_p,
    "Q": ctypes.c_uint64,
    "u": ctypes.c_uint32,
    "i": ctypes.c_int32,
    "f": ctypes.c_float,
    "B": ctypes.c_uint8,
    "H": ctypes.c_uint16,
    "L": Location,
    "S": ctypes.c_char * 64,
}


class Code(IntEnum):
    """The results that the tests meet."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    NOT_INITIALIZED = 3
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209
    UNSUPPORTED_LIMIT = 215
    INVALID_PTX = 218
    UNSUPPORTED_EXEC_AFFINITY = 224
    FILE_NOT_FOUND = 301
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    PEER_ACCESS_ALREADY_ENABLED = 704
    PEER_ACCESS_NOT_ENABLED = 705
    HOST_MEMORY_ALREADY_REGISTERED = 712
    HOST_MEMORY_NOT_REGISTERED = 713
    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801


class CudaError(Exception):
    """A call that returned something other than CUDA_SUCCESS."""

    def __init__(self, name: str, code: int) -> None:
        """Of the function `name`."""
        super().__init__(f"{name} returned {code}")
        self.code = code


class Driver:
    """The exported functions, by name."""

    @functools.cached_property
    def library(self) -> ctypes.CDLL:
        """Loaded at the first call, so that the test's own process never has it."""
        return ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A caller of the function, made once."""
        call = bind(name, getattr(self.library, name), SIGNATURES[name])
        setattr(self, name, call)
        return call


def bind(name: str, function: Any, signature: str) -> Callable[..., Any]:
    """A caller of a C function whose parameters are the signature's letters."""
    function.restype = ctypes.c_int
    function.argtypes = [_LETTERS[letter] for letter in signature]

    def call(*arguments: Any) -> Any:
        outputs = [a() if isinstance(a, type) else None for a in arguments]
        passed = [
            a if out is None else ctypes.byref(out)
            for a, out in zip(arguments, outputs, strict=True)
        ]
        code = function(*passed)
        if code != 0:
            raise CudaError(name, code)
        values = [getattr(out, "value", out) for out in outputs if out is not None]
        return values[0] if len(values) == 1 else tuple(values) or None

    return call


cu = Driver()


def refused(code: int, call: Callable[..., Any], *arguments: Any) -> None:
    """The call returns this code and nothing else."""
    try:
        result = call(*arguments)
    except CudaError as error:
        if error.code != code:
            raise
    else:
        raise AssertionError(f"succeeded with {result} instead of {code!r}")


def eventually(call: Callable[..., Any], *arguments: Any) -> None:
    """A query that may say "not ready" for a while, because its answer is on its way."""
    deadline = time.monotonic() + 20
    while True:
        try:
            call(*arguments)
            return
        except CudaError as error:
            if error.code != Code.NOT_READY or time.monotonic() > deadline:
                raise


def start() -> int:
    """Initialize, and make the first device's primary context current; its handle."""
    cu.cuInit(0)
    context = cu.cuDevicePrimaryCtxRetain(pointer, 0)
    cu.cuCtxSetCurrent(context)
    return context


def fixture(name: str) -> bytes:
    """The bytes of a file in tests/cuda/fixtures, with the NUL that PTX needs behind them."""
    return (FIXTURES / name).read_bytes() + b"\0"


def load(name: str = "driver_kernels.ptx") -> int:
    """A module of a fixture."""
    return cu.cuModuleLoadData(pointer, fixture(name))


def function(module: int, name: str) -> int:
    """A kernel of a module."""
    return cu.cuModuleGetFunction(pointer, module, name.encode())


def upload(values: ctypes.Array) -> int:
    """Fresh device memory that holds the values."""
    address = cu.cuMemAlloc_v2(u64, ctypes.sizeof(values))
    cu.cuMemcpyHtoD_v2(address, values, ctypes.sizeof(values))
    return address


def download(address: int, kind: type[ctypes._SimpleCData], count: int) -> list:
    """`count` values of device memory."""
    values = (kind * count)()
    cu.cuMemcpyDtoH_v2(values, address, ctypes.sizeof(values))
    return list(values)


def ints(*values: int) -> ctypes.Array:
    """A C array of them."""
    return (i32 * len(values))(*values)


def parameters(*arguments: Any) -> ctypes.Array:
    """What cuLaunchKernel's kernelParams points to; each argument is a ctypes value."""
    array = (pointer * max(1, len(arguments)))(*[ctypes.addressof(a) for a in arguments])
    array.kept_alive = arguments
    return array


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (*sizes, 1, 1)[:3]


def launch(
    kernel: int,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    *arguments: Any,
    shared: int = 0,
    stream: int | None = None,
) -> None:
    """cuLaunchKernel with kernelParams."""
    sizes = (*_three(grid), *_three(block), shared)
    cu.cuLaunchKernel(kernel, *sizes, stream, parameters(*arguments), None)


class Statistics(ctypes.Structure):
    """What rgpu_cuda_stats fills in, since the process began."""

    _fields_ = [
        (name, u64) for name in ("waits", "stalls", "records", "frames", "bytes_out", "bytes_in")
    ]


def statistics() -> Statistics:
    """The shim's own figures now."""
    figures = Statistics()
    ask = ctypes.CDLL("librgpu_cuda.so").rgpu_cuda_stats
    ask.restype, ask.argtypes = None, [ctypes.c_void_p]
    ask(ctypes.byref(figures))
    return figures


def library_folder() -> Path | None:
    """Where our libcuda.so.1 is: as rgpu-run finds it, else in a build tree; None: nowhere."""
    from rgpu_launch import cuda_environment  # Not for children, which have no site-packages.

    folders = [cuda_environment.library_folder()]
    folders += sorted(_REPOSITORY.glob("build/*/cuda_shim/lib"))
    return next(
        (folder for folder in folders if folder and (folder / "libcuda.so.1").exists()), None
    )


def skip_without_shim() -> None:
    """Skip the test where the shim is not built."""
    if library_folder() is None:
        import pytest  # Here, so that children do not.

        pytest.skip("the CUDA shim is not built")


def child_environment(server: str | None = None, **extra: str) -> dict[str, str]:
    """What a program needs to find our libraries and a server; the run's own if none is named."""
    folder = str(library_folder())
    path = os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path, **extra}
    if server is not None:
        environment["RGPU_OPSERVER"] = server
    return environment


# Says what the failing line's names were: there is no rewriting of asserts in a child.
_CHILD = """
import sys, traceback
import {module} as module
try:
    getattr(module, {name!r}).case()
except BaseException as error:
    traceback.print_exc()
    frames = list(traceback.walk_tb(error.__traceback__))
    print({{k: v for k, v in frames[-1][0].f_locals.items()}}, file=sys.stderr)
    sys.exit(1)
"""


def run_child(code: str, server: str | None = None, **extra: str) -> subprocess.CompletedProcess:
    """Run Python code in a new process, with our libcuda on its path."""
    skip_without_shim()
    return subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(code)],
        cwd=Path(__file__).parent,
        env=child_environment(server, **extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
    )


def in_process(case: Callable[[], None]) -> Callable[[], None]:
    """Make a test of a function: it runs in a new process, which must end well and quietly."""
    return in_process_with()(case)


def in_process_with(
    *, quiet: bool = True, server: str | None = None, **extra: str
) -> Callable[[Any], Callable[..., None]]:
    """in_process, for a test that may say something on stderr, with environment variables.

    `server` names the fixture of the server that it uses instead of the run's.
    """

    def wrap(case: Callable[[], None]) -> Callable[..., None]:
        code = _CHILD.format(module=case.__module__, name=case.__name__)

        def run(address: Callable[[], str | None]) -> None:
            skip_without_shim()
            done = run_child(code, address(), **extra)
            assert done.returncode == 0, f"status {done.returncode}\n{done.stderr}"
            assert not quiet or done.stderr == "", done.stderr

        # Not functools.wraps: pytest would look through it and run the case here.
        def on_the_runs_server() -> None:
            run(lambda: None)

        def on_another(request: Any) -> None:
            run(lambda: request.getfixturevalue(server).address)

        test: Any = on_another if server else on_the_runs_server
        test.case, test.__doc__ = case, case.__doc__
        test.__name__, test.__module__ = case.__name__, case.__module__
        return test

    return wrap
