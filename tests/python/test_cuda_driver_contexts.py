"""Contexts: the primary one and its count, the stack of current ones, limits and settings."""

import ctypes
import threading

from cuda_driver import (
    Code,
    cu,
    download,
    i32,
    in_process,
    ints,
    pointer,
    refused,
    start,
    u32,
    u64,
    upload,
)

SPIN, YIELD, BLOCKING = 1, 2, 4


def create(flags=0, device=0):
    return cu.cuCtxCreate_v4(pointer, None, flags, device)


@in_process
def test_the_primary_context_lives_while_it_is_retained():
    cu.cuInit(0)
    assert cu.cuDevicePrimaryCtxGetState(0, u32, i32) == (0, 0)
    first = cu.cuDevicePrimaryCtxRetain(pointer, 0)
    assert cu.cuDevicePrimaryCtxRetain(pointer, 0) == first
    assert cu.cuCtxGetCurrent(pointer) is None
    assert cu.cuDevicePrimaryCtxGetState(0, u32, i32)[1] == 1
    cu.cuDevicePrimaryCtxRelease_v2(0)
    assert cu.cuDevicePrimaryCtxGetState(0, u32, i32)[1] == 1
    cu.cuDevicePrimaryCtxRelease_v2(0)
    assert cu.cuDevicePrimaryCtxGetState(0, u32, i32)[1] == 0
    refused(Code.INVALID_CONTEXT, cu.cuDevicePrimaryCtxRelease_v2, 0)
    refused(Code.INVALID_DEVICE, cu.cuDevicePrimaryCtxRetain, pointer, 55)


@in_process
def test_flags_of_the_primary_context_may_be_set_before_and_after():
    cu.cuInit(0)
    cu.cuDevicePrimaryCtxSetFlags_v2(0, BLOCKING)
    assert cu.cuDevicePrimaryCtxGetState(0, u32, i32) == (BLOCKING, 0)
    start()
    assert cu.cuCtxGetFlags(u32) & 7 == BLOCKING
    cu.cuDevicePrimaryCtxSetFlags_v2(0, YIELD)
    assert cu.cuDevicePrimaryCtxGetState(0, u32, i32)[0] & 7 == YIELD
    refused(Code.INVALID_VALUE, cu.cuDevicePrimaryCtxSetFlags_v2, 0, SPIN | YIELD)
    refused(Code.INVALID_VALUE, cu.cuDevicePrimaryCtxSetFlags_v2, 0, 0x10000)


@in_process
def test_reset_gives_the_primary_contexts_memory_back():
    start()
    address = upload(ints(1, 2, 3))
    cu.cuDevicePrimaryCtxReset_v2(0)
    start()
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, address)
    assert download(upload(ints(4, 5)), i32, 2) == [4, 5]


@in_process
def test_without_a_context_calls_say_so():
    cu.cuInit(0)
    assert cu.cuCtxGetCurrent(pointer) is None
    for call, arguments in {
        cu.cuCtxGetDevice: (i32,),
        cu.cuCtxGetFlags: (u32,),
        cu.cuCtxSynchronize: (),
        cu.cuMemAlloc_v2: (u64, 64),
        cu.cuMemGetInfo_v2: (u64, u64),
        cu.cuStreamCreate: (pointer, 0),
        cu.cuEventCreate: (pointer, 0),
        cu.cuModuleLoadData: (pointer, b".version 7.0"),
        cu.cuCtxGetLimit: (u64, 0),
        cu.cuCtxPopCurrent_v2: (pointer,),
        cu.cuCtxAttach: (pointer, 0),
    }.items():
        refused(Code.INVALID_CONTEXT, call, *arguments)


@in_process
def test_contexts_form_a_stack():
    cu.cuInit(0)
    first, second = create(), create()
    assert first != second
    assert cu.cuCtxGetCurrent(pointer) == second
    assert cu.cuCtxPopCurrent_v2(pointer) == second
    assert cu.cuCtxGetCurrent(pointer) == first
    cu.cuCtxPushCurrent_v2(second)
    assert cu.cuCtxGetCurrent(pointer) == second
    cu.cuCtxSetCurrent(first)  # Replaces the top.
    assert cu.cuCtxPopCurrent_v2(pointer) == first
    assert cu.cuCtxPopCurrent_v2(pointer) == first
    refused(Code.INVALID_CONTEXT, cu.cuCtxPopCurrent_v2, pointer)
    cu.cuCtxSetCurrent(None)
    assert cu.cuCtxGetCurrent(pointer) is None
    refused(Code.INVALID_CONTEXT, cu.cuCtxPushCurrent_v2, None)


@in_process
def test_a_destroyed_context_is_gone_with_what_it_held():
    cu.cuInit(0)
    context = create()
    address = upload(ints(7))
    cu.cuCtxDestroy_v2(context)
    assert cu.cuCtxGetCurrent(pointer) is None
    refused(Code.INVALID_CONTEXT, cu.cuCtxPushCurrent_v2, context)
    refused(Code.INVALID_CONTEXT, cu.cuCtxDestroy_v2, context)
    create()
    refused(Code.INVALID_VALUE, cu.cuMemFree_v2, address)
    assert download(upload(ints(9)), i32, 1) == [9]


@in_process
def test_the_primary_context_is_not_destroyed_by_hand():
    context = start()
    refused(Code.INVALID_CONTEXT, cu.cuCtxDestroy_v2, context)
    assert download(upload(ints(3)), i32, 1) == [3]


@in_process
def test_a_context_knows_its_device_flags_and_number():
    primary = start()
    other = create(SPIN)
    assert cu.cuCtxGetDevice(i32) == 0
    assert cu.cuCtxGetDevice_v2(i32, primary) == 0
    assert cu.cuCtxGetFlags(u32) & 7 == SPIN
    cu.cuCtxSetFlags(YIELD)
    assert cu.cuCtxGetFlags(u32) & 7 == YIELD
    refused(Code.INVALID_VALUE, cu.cuCtxSetFlags, SPIN | BLOCKING)
    numbers = {cu.cuCtxGetId(primary, u64), cu.cuCtxGetId(other, u64)}
    assert len(numbers) == 2
    assert cu.cuCtxGetId(None, u64) == cu.cuCtxGetId(other, u64)  # None is the current one.
    assert cu.cuCtxGetApiVersion(other, u32) >= 3020
    refused(Code.INVALID_DEVICE, create, 0, 55)
    refused(Code.INVALID_VALUE, create, 0x10000)


@in_process
def test_synchronize_of_any_context():
    primary = start()
    address = upload(ints(0))
    other = create()
    cu.cuCtxSynchronize()
    cu.cuCtxSynchronize_v2(primary)
    cu.cuCtxSynchronize_v2(other)
    cu.cuCtxSetCurrent(primary)
    cu.cuMemsetD32Async(address, 5, 1, None)
    cu.cuCtxSynchronize_v2(primary)
    assert download(address, i32, 1) == [5]


@in_process
def test_attaching_counts_uses():
    cu.cuInit(0)
    context = create()
    assert cu.cuCtxAttach(pointer, 0) == context
    refused(Code.INVALID_VALUE, cu.cuCtxAttach, pointer, 1)
    cu.cuCtxDetach(context)
    assert download(upload(ints(6)), i32, 1) == [6]
    cu.cuCtxDetach(context)
    assert cu.cuCtxGetCurrent(pointer) is None
    refused(Code.INVALID_CONTEXT, cu.cuCtxPushCurrent_v2, context)


@in_process
def test_limits_are_kept():
    start()
    stack, fifo, heap = 0, 1, 2
    assert cu.cuCtxGetLimit(u64, heap) == 8 << 20
    assert cu.cuCtxGetLimit(u64, stack) >= 1024
    cu.cuCtxSetLimit(stack, 4096)
    cu.cuCtxSetLimit(heap, 32 << 20)
    cu.cuCtxSetLimit(fifo, 2 << 20)
    assert cu.cuCtxGetLimit(u64, stack) >= 4096
    assert cu.cuCtxGetLimit(u64, heap) >= 32 << 20
    assert cu.cuCtxGetLimit(u64, fifo) >= 2 << 20
    for call in (cu.cuCtxGetLimit, lambda out, limit: cu.cuCtxSetLimit(limit, 1)):
        refused(Code.INVALID_VALUE, call, u64, 999)


@in_process
def test_cache_preferences_are_kept():
    start()
    assert cu.cuCtxGetCacheConfig(i32) == 0
    cu.cuCtxSetCacheConfig(2)
    assert cu.cuCtxGetCacheConfig(i32) == 2
    refused(Code.INVALID_VALUE, cu.cuCtxSetCacheConfig, 17)
    cu.cuCtxSetSharedMemConfig(2)
    assert cu.cuCtxGetSharedMemConfig(i32) in (1, 2)  # Banks are fixed on newer devices.
    refused(Code.INVALID_VALUE, cu.cuCtxSetSharedMemConfig, 17)
    cu.cuCtxResetPersistingL2Cache()


@in_process
def test_priorities_go_down_from_zero():
    start()
    least, greatest = cu.cuCtxGetStreamPriorityRange(i32, i32)
    assert least == 0
    assert greatest <= 0
    assert cu.cuCtxGetStreamPriorityRange(None, i32) == greatest
    assert cu.cuCtxGetStreamPriorityRange(i32, None) == least


@in_process
def test_execution_affinity_of_a_context_is_not_offered():
    start()
    refused(Code.UNSUPPORTED_EXEC_AFFINITY, cu.cuCtxGetExecAffinity, ctypes.c_uint32 * 2, 0)


@in_process
def test_each_thread_has_a_stack_of_its_own():
    context = start()
    seen = []

    def run():
        seen.append(cu.cuCtxGetCurrent(pointer))
        cu.cuCtxPushCurrent_v2(context)
        seen.append(download(upload(ints(8)), i32, 1))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [None, [8]]
    assert cu.cuCtxGetCurrent(pointer) == context
