"""Parameters of the functions of cuda.h 13.0 that the tests call, a letter each.

p pointer or handle, Q 64 bits, u and i 32, H 16, B 8, f float, L a CUmemLocation by value, S an IPC
handle by value. Names are the exported ones: what cuda.h's macros make of them.
"""

import ctypes


class Location(ctypes.Structure):
    """CUmemLocation: a type (1 device, 2 host) and a number."""

    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


_FUNCTIONS = """
-           cuCtxResetPersistingL2Cache cuCtxSynchronize
Q           cuMemFree_v2 cuMemRelease
i           cuCtxSetCacheConfig cuCtxSetSharedMemConfig cuDeviceGraphMemTrim
i           cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2
p           cuCtxDestroy_v2 cuCtxDetach cuCtxDisablePeerAccess cuCtxGetCacheConfig cuCtxGetCurrent
p           cuCtxGetDevice cuCtxGetFlags cuCtxGetSharedMemConfig cuCtxPopCurrent_v2
p           cuCtxPushCurrent_v2 cuCtxSetCurrent cuCtxSynchronize_v2 cuDeviceGetCount
p           cuDriverGetVersion cuEventDestroy_v2 cuEventQuery cuEventSynchronize cuFuncLoad
p           cuLaunch cuLibraryUnload cuLinkDestroy cuMemFreeHost cuMemHostUnregister
p           cuMemPoolDestroy cuMemcpy2DUnaligned_v2 cuMemcpy2D_v2 cuMemcpy3DPeer cuMemcpy3D_v2
p           cuModuleGetLoadingMode cuModuleUnload cuStreamDestroy_v2 cuStreamQuery
p           cuStreamSynchronize cuThreadExchangeStreamCaptureMode
u           cuCtxSetFlags cuInit
QQ          cuMemAddressFree cuMemUnmap
Qp          cuMemFreeAsync
iQ          cuCtxSetLimit
ip          cuDeviceSetMemPool cuGetErrorName cuGetErrorString
iu          cuDevicePrimaryCtxSetFlags_v2
pQ          cuMemAllocHost_v2 cuMemAlloc_v2 cuMemGetAllocationPropertiesFromHandle cuMemPoolTrimTo
pi          cuCtxGetExecAffinity cuCtxGetLimit cuDeviceGet cuDeviceGetDefaultMemPool
pi          cuDeviceGetMemPool cuDeviceGetProperties cuDeviceGetUuid_v2 cuDevicePrimaryCtxRetain
pi          cuDeviceTotalMem_v2 cuFuncSetCacheConfig cuFuncSetSharedMemConfig
pp          cuCtxGetApiVersion cuCtxGetDevice_v2 cuCtxGetId cuCtxGetStreamPriorityRange
pp          cuCtxRecordEvent cuCtxWaitEvent cuDeviceGetByPCIBusId cuEventRecord cuFuncGetModule
pp          cuFuncGetName cuFuncIsLoaded cuGetExportTable cuKernelGetFunction cuKernelGetLibrary
pp          cuKernelGetName cuLibraryGetKernelCount cuLibraryGetModule cuMemGetInfo_v2
pp          cuMemHostGetFlags cuMemPoolCreate cuMemRetainAllocationHandle cuMemcpy2DAsync_v2
pp          cuMemcpy3DAsync_v2 cuMemcpy3DPeerAsync cuModuleGetFunctionCount cuModuleLoad
pp          cuModuleLoadData cuModuleLoadFatBinary cuStreamCopyAttributes cuStreamGetCtx
pp          cuStreamGetDevice cuStreamGetFlags cuStreamGetGreenCtx cuStreamGetId
pp          cuStreamGetPriority cuStreamIsCapturing
pu          cuCtxAttach cuCtxEnablePeerAccess cuEventCreate cuFuncSetSharedSize cuParamSetSize
pu          cuStreamCreate cuUserObjectRelease cuUserObjectRetain
QBQ         cuMemsetD8_v2
QHQ         cuMemsetD16_v2
QQQ         cuMemcpy cuMemcpyDtoD_v2
QpQ         cuMemcpyHtoD_v2
QuQ         cuMemsetD32_v2
iip         cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute
ipi         cuDeviceGetDevResource
ipp         cuDevicePrimaryCtxGetState
pQQ         cuMemcpyDtoH_v2
pQp         cuMemAllocAsync
pQu         cuMemHostAlloc cuMemHostRegister_v2
piQ         cuPointerGetAttribute cuPointerSetAttribute
pif         cuParamSetf
pii         cuDeviceCanAccessPeer cuDeviceGetAttribute cuDeviceGetExecAffinitySupport
pii         cuDeviceGetName cuDeviceGetPCIBusId cuFuncSetAttribute cuKernelSetCacheConfig
pii         cuLaunchGrid
pip         cuFuncGetAttribute cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemSetMemPool
pip         cuStreamGetAttribute cuStreamSetAttribute
piu         cuParamSeti
ppQ         cuMemGetAccess cuMemGetAddressRange_v2 cuMemPoolSetAccess
ppi         cuCtxGetDevResource cuDeviceComputeCapability cuMemGetAllocationGranularity
ppi         cuMemGetDefaultMemPool cuMemGetMemPool
ppp         cuEventElapsedTime_v2 cuLaunchHostFunc cuLibraryGetKernel cuLibraryGetUnifiedFunction
ppp         cuLinkComplete cuMemPoolGetAccess cuModuleGetFunction cuStreamGetCtx_v2
ppu         cuEventRecordWithFlags cuStreamWaitEvent
pui         cuStreamCreateWithPriority
pup         cuLibraryEnumerateKernels cuModuleEnumerateFunctions
puu         cuLaunchCooperativeKernelMultiDevice
QBQp        cuMemsetD8Async
QHQp        cuMemsetD16Async
QQQp        cuMemcpyAsync cuMemcpyDtoDAsync_v2
QQpQ        cuMemSetAccess
QpQp        cuMemcpy3DBatchAsync_v2 cuMemcpyHtoDAsync_v2
QuQp        cuMemsetD32Async
iipi        cuKernelSetAttribute
pQQp        cuMemcpyDtoHAsync_v2
pQQu        cuStreamWriteValue64_v2
pQpQ        cuMemCreate
pQpp        cuFuncGetParamInfo cuKernelGetParamInfo cuMemAllocFromPoolAsync
pQuu        cuStreamWriteValue32_v2
piii        cuDeviceGetP2PAttribute cuFuncSetBlockShape
piip        cuLaunchGridAsync
pipi        cuKernelGetAttribute
pipu        cuParamSetv
ppiQ        cuOccupancyMaxActiveBlocksPerMultiprocessor
ppii        cuOccupancyAvailableDynamicSMemPerBlock
pppp        cuLaunchKernelEx cuLibraryGetGlobal cuLibraryGetManaged cuModuleGetGlobal_v2
pppu        cuStreamAddCallback
ppui        cuCtxCreate_v4 cuDeviceGetHostAtomicCapabilities
uppQ        cuPointerGetAttributes
uppp        cuLinkCreate_v2
QQBQQ       cuMemsetD2D8_v2
QQHQQ       cuMemsetD2D16_v2
QQQQQ       cuMemMap
QQuQQ       cuMemsetD2D32_v2
QpQpQ       cuMemcpyPeer
pQQQQ       cuMemAddressReserve
ppQQu       cuMemAllocPitch_v2
ppiQp       cuGetProcAddress_v2
ppiQu       cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
pppuu       cuUserObjectCreate
ppupp       cuModuleLoadDataEx
QQBQQp      cuMemsetD2D8Async
QQHQQp      cuMemsetD2D16Async
QQuQQp      cuMemsetD2D32Async
QpQpQp      cuMemcpyPeerAsync
pipupp      cuLinkAddFile_v2
ppppQi      cuOccupancyMaxPotentialBlockSize
ppppQiu     cuOccupancyMaxPotentialBlockSizeWithFlags
ppppppp     cuStreamGetCaptureInfo_v3
pipQpupp    cuLinkAddData_v2
pppQppQp    cuMemcpyBatchAsync_v2
ppppuppu    cuLibraryLoadData cuLibraryLoadFromFile
puuuuuuupp  cuLaunchCooperativeKernel
puuuuuuuppp cuLaunchKernel
p           cuGraphDestroy cuGraphDestroyNode cuGraphExecDestroy
pu          cuGraphCreate
pp          cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2 cuGraphMemcpyNodeGetParams
pp          cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams
pp          cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphChildGraphNodeGetGraph
pp          cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent
pp          cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphClone
pp          cuGraphNodeGetType cuGraphExecGetFlags cuGraphUpload cuGraphLaunch
pp          cuGraphKernelNodeCopyAttributes
pppQ        cuGraphAddEmptyNode
pppQp       cuGraphAddKernelNode_v2 cuGraphAddHostNode cuGraphAddChildGraphNode
pppQp       cuGraphAddEventRecordNode cuGraphAddEventWaitNode
pppQpp      cuGraphAddMemcpyNode cuGraphAddMemsetNode
ppp         cuGraphNodeFindInClone cuGraphGetNodes cuGraphGetRootNodes
ppp         cuGraphInstantiateWithParams cuGraphExecKernelNodeSetParams_v2
ppp         cuGraphExecHostNodeSetParams cuGraphExecChildGraphNodeSetParams
ppp         cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
ppp         cuGraphNodeGetEnabled cuGraphExecUpdate_v2
ppppp       cuGraphGetEdges_v2
pppp        cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2
pppp        cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
ppppQ       cuGraphAddDependencies_v2 cuGraphRemoveDependencies_v2
ppQ         cuGraphInstantiateWithFlags
ppu         cuGraphNodeSetEnabled cuGraphDebugDotPrint cuGraphReleaseUserObject
pup         cuGraphKernelNodeGetAttribute cuGraphKernelNodeSetAttribute
ppuu        cuGraphRetainUserObject
ppuii       cuDeviceGetP2PAtomicCapabilities
"""
SIGNATURES = {
    name: signature.strip("-")
    for signature, *names in map(str.split, _FUNCTIONS.strip().splitlines())
    for name in names
}
