"""What the shim does not offer says so, by its name and once; nothing is broken after it.

Kept apart from the other tests: these calls have no effect to check, and count for nothing in the
coverage table (their log is a file of its own).
"""

import ctypes
import os

from cuda_driver import (
    Code,
    bind,
    cu,
    download,
    function,
    i32,
    in_process_with,
    ints,
    launch,
    load,
    pointer,
    refused,
    run_child,
    start,
    u64,
    upload,
)

# A function that becomes supported leaves this list and gets a test of what it does.
_NAMES = """
cuDeviceGetTexture1DLinearMaxWidth
cuDeviceGetLuid cuDeviceGetNvSciSyncAttributes cuFlushGPUDirectRDMAWrites
cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification
cuIpcGetEventHandle cuIpcOpenEventHandle cuIpcGetMemHandle cuIpcOpenMemHandle_v2
cuIpcCloseMemHandle
cuMemAllocManaged cuMemPrefetchAsync_v2 cuMemAdvise_v2 cuMemRangeGetAttribute
cuMemRangeGetAttributes cuStreamAttachMemAsync
cuMemPrefetchBatchAsync cuMemDiscardBatchAsync cuMemDiscardAndPrefetchBatchAsync
cuMemMapArrayAsync
cuMemExportToShareableHandle
cuMemImportFromShareableHandle
cuMemGetHandleForAddressRange cuMemBatchDecompressAsync
cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolExportPointer
cuMemPoolImportPointer
cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastBindAddr cuMulticastUnbind
cuMulticastGetGranularity
cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArrayGetSparseProperties
cuMipmappedArrayGetSparseProperties cuArrayGetMemoryRequirements
cuMipmappedArrayGetMemoryRequirements cuArrayGetPlane cuArrayDestroy cuArray3DCreate_v2
cuArray3DGetDescriptor_v2 cuMipmappedArrayCreate cuMipmappedArrayGetLevel
cuMipmappedArrayDestroy cuMemcpyDtoA_v2 cuMemcpyAtoD_v2 cuMemcpyHtoA_v2 cuMemcpyAtoH_v2
cuMemcpyAtoA_v2 cuMemcpyHtoAAsync_v2 cuMemcpyAtoHAsync_v2
cuModuleGetTexRef cuModuleGetSurfRef cuTexRefSetArray cuTexRefSetMipmappedArray
cuTexRefSetAddress_v2 cuTexRefSetAddress2D_v3 cuTexRefSetFormat cuTexRefSetAddressMode
cuTexRefSetFilterMode cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias
cuTexRefSetMipmapLevelClamp cuTexRefSetMaxAnisotropy cuTexRefSetBorderColor cuTexRefSetFlags
cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetMipmappedArray cuTexRefGetAddressMode
cuTexRefGetFilterMode cuTexRefGetFormat cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias
cuTexRefGetMipmapLevelClamp cuTexRefGetMaxAnisotropy cuTexRefGetBorderColor cuTexRefGetFlags
cuTexRefCreate cuTexRefDestroy cuSurfRefSetArray cuSurfRefGetArray cuParamSetTexRef
cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc cuTexObjectGetTextureDesc
cuTexObjectGetResourceViewDesc cuSurfObjectCreate cuSurfObjectDestroy
cuSurfObjectGetResourceDesc
cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
cuDestroyExternalMemory cuImportExternalSemaphore cuSignalExternalSemaphoresAsync
cuWaitExternalSemaphoresAsync cuDestroyExternalSemaphore
cuStreamWaitValue32_v2 cuStreamWaitValue64_v2
cuStreamBatchMemOp_v2
cuStreamBeginCapture_v2 cuStreamBeginCaptureToGraph cuStreamEndCapture
cuStreamUpdateCaptureDependencies_v2
cuGraphAddExternalSemaphoresSignalNode cuGraphExternalSemaphoresSignalNodeGetParams
cuGraphExternalSemaphoresSignalNodeSetParams cuGraphAddExternalSemaphoresWaitNode
cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams
cuGraphAddBatchMemOpNode cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams
cuGraphExecBatchMemOpNodeSetParams cuGraphAddMemAllocNode cuGraphMemAllocNodeGetParams
cuGraphAddMemFreeNode cuGraphMemFreeNodeGetParams
cuGraphExecExternalSemaphoresSignalNodeSetParams
cuGraphExecExternalSemaphoresWaitNodeSetParams
cuGraphAddNode_v2 cuGraphNodeSetParams
cuGraphExecNodeSetParams cuGraphConditionalHandleCreate
cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters
cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide
cuTensorMapReplaceAddress
cuGraphicsUnregisterResource cuGraphicsSubResourceGetMappedArray
cuGraphicsResourceGetMappedMipmappedArray cuGraphicsResourceGetMappedPointer_v2
cuGraphicsResourceSetMapFlags_v2 cuGraphicsMapResources cuGraphicsUnmapResources
cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpSetAttribute
cuCoredumpSetAttributeGlobal
cuGreenCtxCreate cuGreenCtxDestroy cuCtxFromGreenCtx
cuGreenCtxGetDevResource cuDevSmResourceSplitByCount cuDevResourceGenerateDesc
cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuGreenCtxStreamCreate
cuGreenCtxGetId
cuLogsRegisterCallback cuLogsUnregisterCallback cuLogsCurrent cuLogsDumpToFile
cuLogsDumpToMemory
cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState cuCheckpointProcessLock
cuCheckpointProcessCheckpoint cuCheckpointProcessRestore cuCheckpointProcessUnlock
"""
UNSUPPORTED = _NAMES.split()
APART = (
    {"RGPU_CUDA_CALL_LOG": f"{log}.unsupported"}
    if (log := os.environ.get("RGPU_CUDA_CALL_LOG"))
    else {}
)


def call(name):
    """With nothing in every register that could hold an argument."""
    called = getattr(cu.library, name)
    called.restype, called.argtypes = ctypes.c_int, [ctypes.c_void_p] * 12
    return called(*[None] * 12)


@in_process_with(quiet=False, **APART)
def test_what_is_not_supported_says_so_and_breaks_nothing():
    start()
    kept = upload(ints(1, 2, 3))
    others = {name: code for name in UNSUPPORTED if (code := call(name)) != Code.NOT_SUPPORTED}
    assert not others
    launch(function(load(), "add_to_each"), 1, 3, u64(kept), i32(3), i32(1))
    cu.cuCtxSynchronize()
    assert download(kept, i32, 3) == [2, 3, 4]


@in_process_with(**APART)
def test_pinned_memory_has_no_address_on_the_device():
    """As CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY says."""
    start()
    assert cu.cuDeviceGetAttribute(i32, 19, 0) == 0
    pinned = cu.cuMemHostAlloc(pointer, 64, 0)
    get = bind("cuMemHostGetDevicePointer", cu.library.cuMemHostGetDevicePointer_v2, "ppu")
    refused(Code.NOT_SUPPORTED, get, pointer, pinned, 0)
    assert download(upload(ints(1)), i32, 1) == [1]


def test_each_is_named_once():
    code = """
        from cuda_driver import *
        from test_cuda_driver_unsupported import *
        start()
        for name in ("cuIpcGetMemHandle", "cuTexObjectCreate", "cuIpcGetMemHandle"):
            call(name)
    """
    lines = run_child(code, **APART).stderr.splitlines()
    assert len(lines) == 2, lines
    assert "cuIpcGetMemHandle" in lines[0]
    assert "cuTexObjectCreate" in lines[1]


def test_the_list_holds_every_function_without_a_test():
    """With the signatures it is all of cuda.h, as far as this machine has one."""
    from cuda_driver_signatures import SIGNATURES

    assert not set(UNSUPPORTED) & set(SIGNATURES)
    assert len(set(UNSUPPORTED)) == len(UNSUPPORTED)
