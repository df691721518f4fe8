"""Streams and events: creation, properties, order, queries and times."""

import ctypes
import threading

from cuda_driver import (
    Code,
    cu,
    download,
    eventually,
    f32,
    function,
    i32,
    in_process,
    in_process_with,
    ints,
    launch,
    load,
    pointer,
    refused,
    start,
    u32,
    u64,
    upload,
)

LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1


class Held:
    """A stream on which a kernel waits until another stream writes its flag."""

    def __init__(self, stream):
        self.stream = stream
        self.flag = upload(ints(0))
        self.other = cu.cuStreamCreate(pointer, NON_BLOCKING)
        launch(function(load(), "wait_for"), 1, 1, u64(self.flag), i32(1), stream=stream)

    def let_go(self):
        cu.cuMemsetD32Async(self.flag, 1, 1, self.other)


def stream(flags=0):
    return cu.cuStreamCreate(pointer, flags)


@in_process
def test_streams_know_their_properties():
    context = start()
    plain, other = stream(), stream(NON_BLOCKING)
    assert (cu.cuStreamGetFlags(plain, u32), cu.cuStreamGetFlags(other, u32)) == (0, NON_BLOCKING)
    assert cu.cuStreamGetCtx(plain, pointer) == context
    assert cu.cuStreamGetCtx_v2(plain, pointer, pointer) == (context, None)
    assert cu.cuStreamGetDevice(plain, i32) == 0
    assert cu.cuStreamGetCtx(None, pointer) == context
    numbers = {cu.cuStreamGetId(s, u64) for s in (plain, other, None, PER_THREAD)}
    assert len(numbers) == 4
    assert cu.cuStreamGetId(None, u64) == cu.cuStreamGetId(LEGACY, u64)
    refused(Code.INVALID_VALUE, stream, 0x80)
    refused(Code.INVALID_VALUE, cu.cuStreamCreate, None, 0)


@in_process
def test_priorities_are_kept_within_the_range():
    start()
    least, greatest = cu.cuCtxGetStreamPriorityRange(i32, i32)
    for wanted in (least, greatest, least + 100, greatest - 100):
        made = cu.cuStreamCreateWithPriority(pointer, NON_BLOCKING, wanted)
        kept = max(greatest, min(least, wanted))
        assert cu.cuStreamGetPriority(made, i32) == kept
        assert cu.cuStreamGetFlags(made, u32) == NON_BLOCKING
    assert cu.cuStreamGetPriority(None, i32) == 0


@in_process
def test_a_destroyed_stream_is_gone():
    start()
    made = stream()
    a = upload(ints(0))
    cu.cuMemsetD32Async(a, 4, 1, made)
    cu.cuStreamDestroy_v2(made)
    for call, arguments in {
        cu.cuStreamDestroy_v2: (),
        cu.cuStreamSynchronize: (),
        cu.cuStreamQuery: (),
        cu.cuStreamGetFlags: (u32,),
        cu.cuStreamGetPriority: (i32,),
    }.items():
        refused(Code.INVALID_HANDLE, call, made, *arguments)
    refused(Code.INVALID_HANDLE, cu.cuStreamDestroy_v2, None)
    cu.cuCtxSynchronize()
    assert download(a, i32, 1) == [4]


@in_process
def test_work_on_one_stream_is_in_order():
    start()
    kernel, made = function(load(), "add_to_each"), stream()
    a = upload(ints(*[0] * 4))
    for i in range(50):
        cu.cuMemsetD32Async(a, i, 2, made)
        launch(kernel, 1, 4, u64(a), i32(4), i32(1), stream=made)
    cu.cuStreamSynchronize(made)
    assert download(a, i32, 4) == [50, 50, 50, 50]


@in_process
def test_a_query_says_whether_work_is_left():
    start()
    made = stream(NON_BLOCKING)
    cu.cuStreamQuery(made)
    held = Held(made)
    refused(Code.NOT_READY, cu.cuStreamQuery, made)
    held.let_go()
    cu.cuStreamSynchronize(made)
    cu.cuStreamQuery(made)


@in_process
def test_polling_ends():
    start()
    made = stream(NON_BLOCKING)
    held = Held(made)
    held.let_go()
    eventually(cu.cuStreamQuery, made)


@in_process
def test_streams_run_beside_each_other():
    start()
    slow, fast = stream(NON_BLOCKING), stream(NON_BLOCKING)
    held = Held(slow)
    a = upload(ints(0))
    cu.cuMemsetD32Async(a, 3, 1, fast)
    cu.cuStreamSynchronize(fast)
    refused(Code.NOT_READY, cu.cuStreamQuery, slow)
    held.let_go()
    cu.cuStreamSynchronize(slow)


@in_process
def test_the_legacy_stream_waits_for_blocking_streams():
    start()
    made = stream()
    a = upload(ints(0))
    held = Held(made)
    cu.cuMemsetD32Async(a, 5, 1, None)  # After what made does; before what it does next.
    launch(function(load(), "add_to_each"), 1, 1, u64(a), i32(1), i32(1), stream=made)
    refused(Code.NOT_READY, cu.cuStreamQuery, None)
    refused(Code.NOT_READY, cu.cuStreamQuery, LEGACY)
    held.let_go()
    cu.cuStreamSynchronize(made)
    assert download(a, i32, 1) == [6]


@in_process
def test_the_legacy_stream_passes_others_by():
    start()
    held = Held(stream(NON_BLOCKING))
    a = upload(ints(0))
    cu.cuMemsetD32Async(a, 5, 1, None)
    cu.cuStreamSynchronize(None)
    assert download(a, i32, 1) == [5]
    refused(Code.NOT_READY, cu.cuStreamQuery, held.stream)
    held.let_go()
    cu.cuCtxSynchronize()
    cu.cuStreamQuery(held.stream)


@in_process
def test_a_threads_own_stream():
    start()
    a = upload(ints(0))
    cu.cuMemsetD32Async(a, 5, 1, PER_THREAD)
    cu.cuStreamSynchronize(PER_THREAD)
    assert download(a, i32, 1) == [5]
    cu.cuStreamQuery(PER_THREAD)
    assert cu.cuStreamGetFlags(PER_THREAD, u32) in (0, NON_BLOCKING)


@in_process
def test_another_thread_needs_only_the_context():
    context = start()
    found = []

    def run():
        cu.cuCtxSetCurrent(context)
        made = stream()
        a = upload(ints(0))
        cu.cuMemsetD32Async(a, 21, 1, made)
        cu.cuStreamSynchronize(made)
        found.append(download(a, i32, 1))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[21]] * 4


@in_process
def test_callbacks_get_the_stream_and_its_state():
    start()
    made = stream()
    seen, done = [], threading.Event()

    @ctypes.CFUNCTYPE(None, pointer, ctypes.c_int, pointer)
    def callback(which, status, data):
        seen.append((which, status, data))
        done.set()

    cu.cuStreamAddCallback(made, ctypes.cast(callback, pointer), 77, 0)
    assert done.wait(20)
    cu.cuStreamSynchronize(made)
    assert seen == [(made, 0, 77)]
    refused(Code.INVALID_VALUE, cu.cuStreamAddCallback, made, None, None, 0)
    refused(
        Code.INVALID_VALUE, cu.cuStreamAddCallback, made, ctypes.cast(callback, pointer), None, 9
    )


@in_process
def test_nothing_is_captured():
    start()
    made = stream()
    assert cu.cuStreamIsCapturing(made, i32) == 0
    assert cu.cuStreamIsCapturing(None, i32) == 0
    status = cu.cuStreamGetCaptureInfo_v3(made, i32, None, None, None, None, None)
    assert status == 0
    mode = i32(2)
    cu.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert mode.value == 0  # Global is what a thread begins with.
    cu.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    assert mode.value == 2
    refused(Code.INVALID_VALUE, cu.cuStreamIsCapturing, made, None)


class Attribute(ctypes.Structure):
    """CUstreamAttrValue, as an integer."""

    _fields_ = [("numbers", i32 * 16)]


@in_process
def test_attributes_of_streams_are_kept_and_copied():
    start()
    first, second = stream(), stream()
    synchronization, priority = 3, 8
    blocking = Attribute((i32 * 16)(3))
    cu.cuStreamSetAttribute(first, synchronization, ctypes.byref(blocking))
    assert cu.cuStreamGetAttribute(first, synchronization, Attribute).numbers[0] == 3
    assert cu.cuStreamGetAttribute(second, synchronization, Attribute).numbers[0] != 3
    cu.cuStreamCopyAttributes(second, first)
    assert cu.cuStreamGetAttribute(second, synchronization, Attribute).numbers[0] == 3
    assert cu.cuStreamGetAttribute(first, priority, Attribute).numbers[0] == 0
    refused(Code.INVALID_VALUE, cu.cuStreamGetAttribute, first, 999, Attribute)


@in_process
def test_events_order_streams():
    start()
    slow, fast = stream(NON_BLOCKING), stream(NON_BLOCKING)
    a, event = upload(ints(0)), cu.cuEventCreate(pointer, 0)
    held = Held(slow)
    cu.cuMemsetD32Async(a, 10, 1, slow)
    cu.cuEventRecord(event, slow)
    cu.cuStreamWaitEvent(fast, event, 0)
    launch(function(load(), "add_to_each"), 1, 1, u64(a), i32(1), i32(1), stream=fast)
    refused(Code.NOT_READY, cu.cuStreamQuery, fast)
    refused(Code.NOT_READY, cu.cuEventQuery, event)
    held.let_go()
    cu.cuStreamSynchronize(fast)
    eventually(cu.cuEventQuery, event)
    assert download(a, i32, 1) == [11]
    refused(Code.INVALID_VALUE, cu.cuStreamWaitEvent, fast, event, 7)


@in_process
def test_an_event_means_its_last_record():
    start()
    first, second = stream(NON_BLOCKING), stream(NON_BLOCKING)
    event = cu.cuEventCreate(pointer, 0)
    cu.cuEventQuery(event)  # Never recorded: nothing to wait for.
    cu.cuEventSynchronize(event)
    held = Held(first)
    cu.cuEventRecord(event, first)
    refused(Code.NOT_READY, cu.cuEventQuery, event)
    cu.cuEventRecord(event, second)
    cu.cuEventSynchronize(event)
    held.let_go()
    cu.cuCtxSynchronize()


@in_process
def test_a_wait_is_for_the_record_before_it():
    start()
    first, second = stream(NON_BLOCKING), stream(NON_BLOCKING)
    event = cu.cuEventCreate(pointer, 2)
    cu.cuEventRecord(event, second)
    cu.cuStreamWaitEvent(second, event, 0)
    held = Held(first)
    cu.cuEventRecord(event, first)
    a = upload(ints(0))
    cu.cuMemsetD32Async(a, 1, 1, second)
    cu.cuStreamSynchronize(second)
    held.let_go()
    cu.cuCtxSynchronize()
    assert download(a, i32, 1) == [1]


@in_process
def test_times_are_the_servers():
    start()
    made = stream()
    begin, end = cu.cuEventCreate(pointer, 0), cu.cuEventCreate(pointer, 1)
    cu.cuEventRecord(begin, made)
    held = Held(made)
    cu.cuEventRecordWithFlags(end, made, 0)
    refused(Code.NOT_READY, cu.cuEventElapsedTime_v2, f32, begin, end)
    held.let_go()
    cu.cuEventSynchronize(end)
    assert cu.cuEventElapsedTime_v2(f32, begin, end) > 0
    assert cu.cuEventElapsedTime_v2(f32, end, begin) < 0
    assert cu.cuEventElapsedTime_v2(f32, begin, begin) == 0
    untimed = cu.cuEventCreate(pointer, 2)
    cu.cuEventRecord(untimed, made)
    cu.cuEventSynchronize(untimed)
    refused(Code.INVALID_HANDLE, cu.cuEventElapsedTime_v2, f32, begin, untimed)
    fresh = cu.cuEventCreate(pointer, 0)
    refused(Code.INVALID_HANDLE, cu.cuEventElapsedTime_v2, f32, begin, fresh)


@in_process
def test_a_destroyed_event_is_gone():
    start()
    event = cu.cuEventCreate(pointer, 0)
    cu.cuEventRecord(event, None)
    cu.cuEventDestroy_v2(event)
    refused(Code.INVALID_HANDLE, cu.cuEventQuery, event)
    refused(Code.INVALID_HANDLE, cu.cuEventRecord, event, None)
    refused(Code.INVALID_HANDLE, cu.cuEventDestroy_v2, event)
    refused(Code.INVALID_HANDLE, cu.cuStreamWaitEvent, None, event, 0)
    refused(Code.INVALID_VALUE, cu.cuEventCreate, pointer, 0x100)
    refused(Code.INVALID_VALUE, cu.cuEventRecordWithFlags, cu.cuEventCreate(pointer, 0), None, 9)


@in_process
def test_events_of_a_whole_context():
    context = start()
    held = Held(stream(NON_BLOCKING))
    event = cu.cuEventCreate(pointer, 0)
    cu.cuCtxRecordEvent(context, event)
    refused(Code.NOT_READY, cu.cuEventQuery, event)
    held.let_go()
    cu.cuEventSynchronize(event)
    eventually(cu.cuStreamQuery, held.stream)
    # Held by the host now: a stream that could let go would itself have to wait.
    a, again, let_go = upload(ints(0)), stream(NON_BLOCKING), threading.Event()
    hold = ctypes.CFUNCTYPE(None, pointer)(lambda _: let_go.wait(20))
    cu.cuLaunchHostFunc(again, ctypes.cast(hold, pointer), None)
    cu.cuEventRecord(event, again)
    cu.cuCtxWaitEvent(context, event)
    late = stream(NON_BLOCKING)
    cu.cuMemsetD32Async(a, 6, 1, late)
    refused(Code.NOT_READY, cu.cuStreamQuery, late)
    let_go.set()
    cu.cuStreamSynchronize(late)
    eventually(cu.cuEventQuery, event)
    assert download(a, i32, 1) == [6]


@in_process_with(server="two_cuda_devices")
def test_events_order_devices():
    cu.cuInit(0)
    contexts = [cu.cuDevicePrimaryCtxRetain(pointer, device) for device in range(2)]
    cu.cuCtxSetCurrent(contexts[0])
    first, event = stream(NON_BLOCKING), cu.cuEventCreate(pointer, 0)
    held = Held(first)
    cu.cuEventRecord(event, first)
    cu.cuCtxSetCurrent(contexts[1])
    second = stream(NON_BLOCKING)
    assert cu.cuStreamGetDevice(second, i32) == 1
    refused(Code.INVALID_HANDLE, cu.cuEventRecord, event, second)
    cu.cuStreamWaitEvent(second, event, 0)
    refused(Code.NOT_READY, cu.cuStreamQuery, second)
    cu.cuCtxSetCurrent(contexts[0])
    held.let_go()
    cu.cuStreamSynchronize(second)
    eventually(cu.cuEventQuery, event)


@in_process
def test_values_are_written_in_stream_order():
    start()
    made = stream(NON_BLOCKING)
    a = upload(ints(1, 2, 3, 4))
    held = Held(made)
    cu.cuStreamWriteValue32_v2(made, a, 77, 0)
    cu.cuStreamWriteValue64_v2(made, a + 8, (5 << 32) + 6, 1)
    refused(Code.NOT_READY, cu.cuStreamQuery, made)
    held.let_go()
    cu.cuStreamSynchronize(made)
    assert download(a, i32, 4) == [77, 2, 6, 5]
    refused(Code.INVALID_VALUE, cu.cuStreamWriteValue32_v2, made, a + 2, 1, 0)
    refused(Code.INVALID_VALUE, cu.cuStreamWriteValue64_v2, made, a + 4, 1, 0)
    refused(Code.INVALID_VALUE, cu.cuStreamWriteValue32_v2, made, 0x10, 1, 0)


@in_process
def test_a_stream_is_of_no_green_context():
    start()
    assert cu.cuStreamGetGreenCtx(stream(), pointer) is None
    refused(Code.INVALID_VALUE, cu.cuStreamGetGreenCtx, stream(), None)
