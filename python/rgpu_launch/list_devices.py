"""What `rgpu-run --devices` runs: lists the CUDA devices of the server, as a program sees them."""

import ctypes
import sys
from typing import Any

from rgpu_launch.cuda_environment import library_folder

_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR.
_NAME_BYTES_MAX = 256


class _CudaError(RuntimeError):
    """A call of the driver API that failed; one line says which and why."""


def _call(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    status = getattr(driver, name)(*arguments)
    if status == 0:
        return
    reason = ctypes.c_char_p()
    driver.cuGetErrorString(status, ctypes.byref(reason))
    raise _CudaError(f"{name}: {(reason.value or b'unknown error').decode()} ({status})")


def _describe(driver: ctypes.CDLL, device: int) -> str:
    name = ctypes.create_string_buffer(_NAME_BYTES_MAX)
    _call(driver, "cuDeviceGetName", name, len(name), device)
    size_bytes = ctypes.c_size_t()
    _call(driver, "cuDeviceTotalMem_v2", ctypes.byref(size_bytes), device)
    capability = [ctypes.c_int(), ctypes.c_int()]
    for number, attribute in zip(capability, _COMPUTE_CAPABILITY, strict=True):
        _call(driver, "cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
    version = ".".join(str(number.value) for number in capability)
    gib = size_bytes.value / (1 << 30)
    return f"{device}: {name.value.decode()}, compute capability {version}, {gib:.1f} GiB"


def main() -> int:
    """One line a device; the exit status is 1, with one line on stderr, if that fails."""
    folder = library_folder()
    try:
        if folder is None:
            raise _CudaError("this rgpu has no CUDA libraries")
        driver = ctypes.CDLL(str(folder / "libcuda.so.1"))
        _call(driver, "cuInit", 0)
        count = ctypes.c_int()
        _call(driver, "cuDeviceGetCount", ctypes.byref(count))
        for device in range(count.value):
            print(_describe(driver, device))
    except (_CudaError, OSError) as error:
        print(f"rgpu-run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
