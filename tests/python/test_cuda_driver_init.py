"""libcuda's beginning: what works before cuInit, errors' names, devices and what they say."""

import ctypes

from cuda_driver import (
    Code,
    bind,
    cu,
    i32,
    in_process,
    in_process_with,
    pointer,
    refused,
    start,
    text,
    u64,
)

Uuid = ctypes.c_ubyte * 16
NAMES = {
    0: (b"CUDA_SUCCESS", b"no error"),
    1: (b"CUDA_ERROR_INVALID_VALUE", b"invalid argument"),
    2: (b"CUDA_ERROR_OUT_OF_MEMORY", b"out of memory"),
    3: (b"CUDA_ERROR_NOT_INITIALIZED", b"initialization error"),
    100: (b"CUDA_ERROR_NO_DEVICE", b"no CUDA-capable device is detected"),
    101: (b"CUDA_ERROR_INVALID_DEVICE", b"invalid device ordinal"),
    200: (b"CUDA_ERROR_INVALID_IMAGE", b"device kernel image is invalid"),
    201: (b"CUDA_ERROR_INVALID_CONTEXT", b"invalid device context"),
    209: (
        b"CUDA_ERROR_NO_BINARY_FOR_GPU",
        b"no kernel image is available for execution on the device",
    ),
    218: (b"CUDA_ERROR_INVALID_PTX", b"a PTX JIT compilation failed"),
    301: (b"CUDA_ERROR_FILE_NOT_FOUND", b"file not found"),
    400: (b"CUDA_ERROR_INVALID_HANDLE", b"invalid resource handle"),
    500: (b"CUDA_ERROR_NOT_FOUND", b"named symbol not found"),
    600: (b"CUDA_ERROR_NOT_READY", b"device not ready"),
    700: (b"CUDA_ERROR_ILLEGAL_ADDRESS", b"an illegal memory access was encountered"),
    701: (b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", b"too many resources requested for launch"),
    710: (b"CUDA_ERROR_ASSERT", b"device-side assert triggered"),
    719: (b"CUDA_ERROR_LAUNCH_FAILED", b"unspecified launch failure"),
    720: (b"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", b"too many blocks in cooperative launch"),
    801: (b"CUDA_ERROR_NOT_SUPPORTED", b"operation not supported"),
    999: (b"CUDA_ERROR_UNKNOWN", b"unknown error"),
}


@in_process
def test_errors_have_the_vendors_names_and_texts():
    for code, expected in NAMES.items():
        named = (cu.cuGetErrorName(code, text), cu.cuGetErrorString(code, text))
        assert named == expected, code


@in_process
def test_a_number_that_is_no_error_has_no_name():
    for call in (cu.cuGetErrorName, cu.cuGetErrorString):
        out = text(b"before")
        refused(Code.INVALID_VALUE, call, 12345, ctypes.byref(out))
        assert out.value is None


@in_process
def test_calls_before_init_are_refused():
    refused(Code.NOT_INITIALIZED, cu.cuDeviceGetCount, i32)
    refused(Code.NOT_INITIALIZED, cu.cuDeviceGet, i32, 0)
    refused(Code.NOT_INITIALIZED, cu.cuCtxGetCurrent, pointer)
    refused(Code.NOT_INITIALIZED, cu.cuMemAlloc_v2, u64, 16)
    refused(Code.NOT_INITIALIZED, cu.cuStreamCreate, pointer, 0)
    refused(Code.NOT_INITIALIZED, cu.cuCtxSynchronize)
    refused(Code.NOT_INITIALIZED, cu.cuModuleLoadData, pointer, b"")
    refused(Code.NOT_INITIALIZED, cu.cuDevicePrimaryCtxRetain, pointer, 0)
    cu.cuInit(0)
    assert cu.cuDeviceGetCount(i32) >= 1


@in_process
def test_init_may_be_repeated_and_knows_no_flags():
    refused(Code.INVALID_VALUE, cu.cuInit, 1)
    refused(Code.NOT_INITIALIZED, cu.cuDeviceGetCount, i32)
    cu.cuInit(0)
    cu.cuInit(0)


@in_process
def test_the_version_is_known_before_init():
    assert cu.cuDriverGetVersion(i32) // 1000 == 13
    refused(Code.INVALID_VALUE, cu.cuDriverGetVersion, None)


@in_process
def test_devices_are_numbered_from_zero():
    cu.cuInit(0)
    count = cu.cuDeviceGetCount(i32)
    assert [cu.cuDeviceGet(i32, i) for i in range(count)] == list(range(count))
    refused(Code.INVALID_DEVICE, cu.cuDeviceGet, i32, count)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGet, i32, -1)
    refused(Code.INVALID_VALUE, cu.cuDeviceGet, None, 0)
    refused(Code.INVALID_VALUE, cu.cuDeviceGetCount, None)


@in_process
def test_a_devices_name_fits_the_buffer():
    cu.cuInit(0)
    long = ctypes.create_string_buffer(256)
    cu.cuDeviceGetName(long, 256, 0)
    assert len(long.value) > 4
    short = ctypes.create_string_buffer(b"########", 8)
    cu.cuDeviceGetName(short, 5, 0)
    assert short.raw == long.value[:4] + b"\0###"
    refused(Code.INVALID_VALUE, cu.cuDeviceGetName, None, 8, 0)
    refused(Code.INVALID_VALUE, cu.cuDeviceGetName, short, -1, 0)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetName, short, 8, 77)


@in_process_with(server="two_cuda_devices")
def test_each_device_has_an_identity_of_its_own():
    cu.cuInit(0)
    assert cu.cuDeviceGetCount(i32) == 2
    uuids = {bytes(cu.cuDeviceGetUuid_v2(Uuid, i)) for i in range(2)}
    assert len(uuids) == 2
    buses = []
    for device in range(2):
        bus = ctypes.create_string_buffer(32)
        cu.cuDeviceGetPCIBusId(bus, 32, device)
        assert cu.cuDeviceGetByPCIBusId(i32, bus.value) == device
        buses.append(bus.value)
    assert buses[0] != buses[1]
    refused(Code.INVALID_VALUE, cu.cuDeviceGetByPCIBusId, i32, None)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetByPCIBusId, i32, b"fffe:fe:1e.0")
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetUuid_v2, Uuid, 2)


@in_process
def test_attributes_agree_with_each_other():
    cu.cuInit(0)

    def attribute(number):
        return cu.cuDeviceGetAttribute(i32, number, 0)

    assert attribute(10) == 32  # Warp size.
    assert attribute(1) == attribute(2) == 1024
    assert cu.cuDeviceComputeCapability(i32, i32, 0) == (attribute(75), attribute(76))
    assert attribute(41) == 1  # Unified addressing.
    assert attribute(89) == 0  # Concurrent managed access.
    assert attribute(8) <= attribute(97) <= attribute(81)  # Shared memory.
    assert attribute(16) >= 1
    properties = cu.cuDeviceGetProperties(ctypes.c_int32 * 14, 0)
    numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert list(properties) == [attribute(n) for n in numbers]
    refused(Code.INVALID_VALUE, attribute, 0)
    refused(Code.INVALID_VALUE, attribute, 100000)
    refused(Code.INVALID_VALUE, cu.cuDeviceGetAttribute, None, 10, 0)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetAttribute, i32, 10, 99)


@in_process
def test_every_attribute_of_the_header_is_answered():
    cu.cuInit(0)
    for number in range(1, 148):
        cu.cuDeviceGetAttribute(i32, number, 0)


@in_process
def test_total_memory_is_what_a_context_sees():
    start()
    free, total = cu.cuMemGetInfo_v2(u64, u64)
    assert cu.cuDeviceTotalMem_v2(u64, 0) == total
    assert 0 < free <= total
    refused(Code.INVALID_DEVICE, cu.cuDeviceTotalMem_v2, u64, 99)


@in_process
def test_execution_affinity_is_not_offered():
    cu.cuInit(0)
    assert cu.cuDeviceGetExecAffinitySupport(i32, 0, 0) == 0
    refused(Code.INVALID_VALUE, cu.cuDeviceGetExecAffinitySupport, i32, 99, 0)


@in_process
def test_older_names_of_functions_work():
    """The exports that cuda.h hides behind newer ones take what their own versions took."""
    cu.cuInit(0)
    uuid = ctypes.create_string_buffer(16)
    bind("cuDeviceGetUuid", cu.library.cuDeviceGetUuid, "pi")(uuid, 0)
    assert uuid.raw == bytes(cu.cuDeviceGetUuid_v2(Uuid, 0))
    create = bind("cuCtxCreate_v2", cu.library.cuCtxCreate_v2, "pui")
    context = create(pointer, 0, 0)
    assert cu.cuCtxGetCurrent(pointer) == context
    cu.cuCtxDestroy_v2(context)
    create = bind("cuCtxCreate_v3", cu.library.cuCtxCreate_v3, "ppiui")
    context = create(pointer, None, 0, 0, 0)
    assert cu.cuCtxGetCurrent(pointer) == context
    bind("cuCtxDestroy", cu.library.cuCtxDestroy, "p")(context)
    assert cu.cuCtxGetCurrent(pointer) is None


class Resource(ctypes.Structure):
    """CUdevResource of multiprocessors."""

    _fields_ = [
        ("type", i32),
        ("padding", ctypes.c_uint8 * 92),
        ("count", i32),
        ("rest", ctypes.c_uint8 * 44),
    ]


@in_process
def test_a_device_offers_its_multiprocessors():
    context = start()
    processors = cu.cuDeviceGetAttribute(i32, 16, 0)
    for resource in (
        cu.cuDeviceGetDevResource(0, Resource, 1),
        cu.cuCtxGetDevResource(context, Resource, 1),
    ):
        assert (resource.type, resource.count) == (1, processors)
    refused(914, cu.cuDeviceGetDevResource, 0, Resource, 0)
    refused(Code.INVALID_DEVICE, cu.cuDeviceGetDevResource, 9, Resource, 1)
    refused(Code.INVALID_CONTEXT, cu.cuCtxGetDevResource, 0x1234, Resource, 1)


@in_process
def test_host_memory_has_no_atomics_of_the_device():
    cu.cuInit(0)
    assert cu.cuDeviceGetAttribute(i32, 86, 0) == 0
    wanted = (i32 * 3)(0, 4, 12)
    assert list(cu.cuDeviceGetHostAtomicCapabilities(i32 * 3, wanted, 3, 0)) == [0, 0, 0]
    refused(Code.INVALID_VALUE, cu.cuDeviceGetHostAtomicCapabilities, i32 * 3, None, 3, 0)
    refused(Code.INVALID_VALUE, cu.cuDeviceGetHostAtomicCapabilities, i32 * 1, (i32 * 1)(99), 1, 0)


@in_process
def test_user_objects_are_counted():
    cu.cuInit(0)
    destroyed = []
    destroy = ctypes.CFUNCTYPE(None, pointer)(destroyed.append)
    made = cu.cuUserObjectCreate(pointer, 0x55, ctypes.cast(destroy, pointer), 1, 1)
    cu.cuUserObjectRetain(made, 2)
    cu.cuUserObjectRelease(made, 2)
    refused(Code.INVALID_VALUE, cu.cuUserObjectRelease, made, 5)
    assert destroyed == []
    cu.cuUserObjectRelease(made, 1)
    assert destroyed == [0x55]
    refused(Code.INVALID_VALUE, cu.cuUserObjectRelease, made, 1)
    refused(Code.INVALID_VALUE, cu.cuUserObjectCreate, pointer, None, None, 1, 1)
