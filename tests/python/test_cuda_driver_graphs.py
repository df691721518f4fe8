"""Graphs that a program builds: nodes, edges, launches, and what is changed afterwards."""

import ctypes
import os
import tempfile
from pathlib import Path

from cuda_driver import (
    Code,
    cu,
    download,
    function,
    i32,
    in_process,
    ints,
    load,
    parameters,
    pointer,
    refused,
    start,
    u32,
    u64,
    upload,
)
from test_cuda_driver_copies import DEVICE, HOST, Copy3D

KERNEL, MEMCPY, MEMSET, HOST_NODE, GRAPH, EMPTY, WAIT, RECORD = range(8)
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
UPDATE_FAILURE = 910


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", pointer),
        ("grid", u32 * 3),
        ("block", u32 * 3),
        ("shared", u32),
        ("parameters", pointer),
        ("extra", pointer),
        ("kernel", pointer),
        ("context", pointer),
    ]


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [
        ("address", u64),
        ("pitch", u64),
        ("value", u32),
        ("element_size", u32),
        ("width", u64),
        ("height", u64),
    ]


class HostNode(ctypes.Structure):
    """CUDA_HOST_NODE_PARAMS."""

    _fields_ = [("function", pointer), ("data", pointer)]


class Instantiation(ctypes.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = [("flags", u64), ("stream", pointer), ("node", pointer), ("result", i32)]


class Update(ctypes.Structure):
    """CUgraphExecUpdateResultInfo."""

    _fields_ = [("result", i32), ("node", pointer), ("from_node", pointer)]


def handles(*nodes):
    return (pointer * len(nodes))(*nodes)


def adding(kernel, address, count, value):
    """A kernel node that adds to each of some integers; its parameters live with it."""
    node = KernelNode(kernel, (1, 1, 1), (32, 1, 1))
    node.kept = parameters(u64(address), i32(count), i32(value))
    node.parameters = ctypes.addressof(node.kept)
    return node


def filling(address, value, count):
    return MemsetNode(address, 4 * count, value, 4, count, 1)


def copying(target, source, size):
    """From device memory to host memory."""
    copy = Copy3D(width=size, height=1, depth=1)
    copy.src_type, copy.src_device = DEVICE, source
    copy.dst_type, copy.dst_host = HOST, ctypes.addressof(target)
    return copy


def nodes_of(call, handle, count=8):
    found, size = (pointer * count)(), u64(count)
    call(handle, found, ctypes.byref(size))
    return list(found[: size.value])


def run(executable):
    cu.cuGraphLaunch(executable, None)
    cu.cuStreamSynchronize(None)


class Built:
    """x = 7, x += 1, out = x, a call."""

    def __init__(self):
        self.graph = cu.cuGraphCreate(pointer, 0)
        self.x, self.out, self.calls = upload(ints(0, 0, 0)), ints(0, 0, 0), []
        self.kernel = function(load(), "add_to_each")
        self.callback = Callback(self.calls.append)
        self.call = HostNode(ctypes.cast(self.callback, pointer), 5)
        self.add = adding(self.kernel, self.x, 3, 1)
        self.fill, self.copy = filling(self.x, 7, 3), copying(self.out, self.x, 12)
        graph = self.graph
        self.fill_node = cu.cuGraphAddMemsetNode(pointer, graph, None, 0, ref(self.fill), None)
        after = handles(self.fill_node)
        self.add_node = cu.cuGraphAddKernelNode_v2(pointer, graph, after, 1, ref(self.add))
        after = handles(self.add_node)
        self.copy_node = cu.cuGraphAddMemcpyNode(pointer, graph, after, 1, ref(self.copy), None)
        after = handles(self.copy_node)
        self.call_node = cu.cuGraphAddHostNode(pointer, graph, after, 1, ref(self.call))


ref = ctypes.byref


@in_process
def test_a_launch_does_what_the_nodes_say_each_time():
    start()
    built = Built()
    executable = cu.cuGraphInstantiateWithFlags(pointer, built.graph, 0)
    cu.cuGraphUpload(executable, None)
    for times in range(1, 4):
        built.out[:] = [0, 0, 0]
        run(executable)
        assert list(built.out) == [8, 8, 8]
        assert built.calls == [5] * times
    how = Instantiation(flags=2, result=9)  # Uploaded at once.
    second = cu.cuGraphInstantiateWithParams(pointer, built.graph, ref(how))
    assert how.result == 0
    assert cu.cuGraphExecGetFlags(second, u64) == 2
    cu.cuGraphDestroy(built.graph)
    run(second)
    assert len(built.calls) == 4
    cu.cuGraphExecDestroy(second)
    refused(Code.INVALID_VALUE, cu.cuGraphLaunch, second, None)
    refused(Code.INVALID_VALUE, cu.cuGraphDestroy, built.graph)
    cu.cuGraphExecDestroy(executable)


@in_process
def test_nodes_tell_their_parameters_and_take_others():
    start()
    built = Built()
    told = KernelNode()
    cu.cuGraphKernelNodeGetParams_v2(built.add_node, ref(told))
    assert told.function == built.kernel
    assert list(told.block) == [32, 1, 1]
    values = ctypes.cast(told.parameters, ctypes.POINTER(pointer))
    assert ctypes.cast(values[2], ctypes.POINTER(i32))[0] == 1
    fill, copy, call = MemsetNode(), Copy3D(), HostNode()
    cu.cuGraphMemsetNodeGetParams(built.fill_node, ref(fill))
    assert bytes(fill) == bytes(built.fill)
    cu.cuGraphMemcpyNodeGetParams(built.copy_node, ref(copy))
    assert bytes(copy) == bytes(built.copy)
    cu.cuGraphHostNodeGetParams(built.call_node, ref(call))
    assert call.data == 5
    refused(Code.INVALID_VALUE, cu.cuGraphHostNodeGetParams, built.add_node, ref(call))

    before = cu.cuGraphInstantiateWithFlags(pointer, built.graph, 0)
    other = ints(0, 0, 0)
    cu.cuGraphKernelNodeSetParams_v2(built.add_node, ref(adding(built.kernel, built.x, 2, 10)))
    cu.cuGraphMemsetNodeSetParams(built.fill_node, ref(filling(built.x, 20, 3)))
    cu.cuGraphMemcpyNodeSetParams(built.copy_node, ref(copying(other, built.x, 12)))
    call.data = 6
    cu.cuGraphHostNodeSetParams(built.call_node, ref(call))
    after = cu.cuGraphInstantiateWithFlags(pointer, built.graph, 0)
    run(after)
    assert (list(other), built.calls) == ([30, 30, 20], [6])
    run(before)
    assert (list(built.out), built.calls) == ([8, 8, 8], [6, 5])

    # In what is executable alone.
    third = ints(0, 0, 0)
    add = adding(built.kernel, built.x, 1, 100)
    cu.cuGraphExecKernelNodeSetParams_v2(before, built.add_node, ref(add))
    cu.cuGraphExecMemsetNodeSetParams(before, built.fill_node, ref(filling(built.x, 1, 3)), None)
    to_third = copying(third, built.x, 12)
    cu.cuGraphExecMemcpyNodeSetParams(before, built.copy_node, ref(to_third), None)
    call.data = 7
    cu.cuGraphExecHostNodeSetParams(before, built.call_node, ref(call))
    run(before)
    assert (list(third), built.calls[-1]) == ([101, 1, 1], 7)
    cu.cuGraphNodeSetEnabled(before, built.add_node, 0)
    assert cu.cuGraphNodeGetEnabled(before, built.add_node, u32) == 0
    run(before)
    assert list(third) == [1, 1, 1]
    refused(Code.INVALID_VALUE, cu.cuGraphNodeSetEnabled, before, built.call_node, 0)


@in_process
def test_edges_are_those_that_were_given():
    start()
    graph = cu.cuGraphCreate(pointer, 0)
    a = cu.cuGraphAddEmptyNode(pointer, graph, None, 0)
    b = cu.cuGraphAddEmptyNode(pointer, graph, handles(a), 1)
    c = cu.cuGraphAddEmptyNode(pointer, graph, None, 0)
    assert nodes_of(cu.cuGraphGetNodes, graph) == [a, b, c]
    assert nodes_of(cu.cuGraphGetRootNodes, graph) == [a, c]
    cu.cuGraphAddDependencies_v2(graph, handles(b), handles(c), None, 1)
    refused(
        Code.INVALID_VALUE, cu.cuGraphAddDependencies_v2, graph, handles(b), handles(c), None, 1
    )
    from_, to, count = (pointer * 4)(), (pointer * 4)(), u64(4)
    cu.cuGraphGetEdges_v2(graph, from_, to, None, ref(count))
    assert (from_[: count.value], to[: count.value]) == ([a, b], [b, c])
    count = u64(4)
    cu.cuGraphNodeGetDependencies_v2(c, from_, None, ref(count))
    assert from_[: count.value] == [b]
    count = u64(4)
    cu.cuGraphNodeGetDependentNodes_v2(a, from_, None, ref(count))
    assert from_[: count.value] == [b]
    kind = i32()
    cu.cuGraphNodeGetType(a, ref(kind))
    assert kind.value == EMPTY
    # Round in a circle it is not instantiated.
    cu.cuGraphAddDependencies_v2(graph, handles(c), handles(a), None, 1)
    refused(Code.INVALID_VALUE, cu.cuGraphInstantiateWithFlags, pointer, graph, 0)
    cu.cuGraphRemoveDependencies_v2(graph, handles(c), handles(a), None, 1)
    cu.cuGraphExecDestroy(cu.cuGraphInstantiateWithFlags(pointer, graph, 0))

    clone = cu.cuGraphClone(pointer, graph)
    its_c = cu.cuGraphNodeFindInClone(pointer, c, clone)
    assert its_c not in (a, b, c)
    cu.cuGraphDestroyNode(its_c)
    assert len(nodes_of(cu.cuGraphGetNodes, clone)) == 2
    assert len(nodes_of(cu.cuGraphGetNodes, graph)) == 3
    refused(Code.INVALID_VALUE, cu.cuGraphNodeFindInClone, pointer, c, clone)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.dot"
        cu.cuGraphDebugDotPrint(graph, os.fsencode(path), 0)
        assert path.read_text().count("->") == 2


@in_process
def test_children_events_and_updates():
    start()
    built = Built()
    parent = cu.cuGraphCreate(pointer, 0)
    go, done = (cu.cuEventCreate(pointer, 2) for _ in range(2))
    wait = cu.cuGraphAddEventWaitNode(pointer, parent, None, 0, done)
    assert cu.cuGraphEventWaitNodeGetEvent(wait, pointer) == done
    cu.cuGraphEventWaitNodeSetEvent(wait, go)
    child = cu.cuGraphAddChildGraphNode(pointer, parent, handles(wait), 1, built.graph)
    its_graph = cu.cuGraphChildGraphNodeGetGraph(child, pointer)
    assert len(nodes_of(cu.cuGraphGetNodes, its_graph)) == 4
    refused(Code.INVALID_VALUE, cu.cuGraphDestroy, its_graph)  # It is the node's.
    record = cu.cuGraphAddEventRecordNode(pointer, parent, handles(child), 1, go)
    assert cu.cuGraphEventRecordNodeGetEvent(record, pointer) == go
    cu.cuGraphEventRecordNodeSetEvent(record, done)
    executable = cu.cuGraphInstantiateWithFlags(pointer, parent, 0)
    cu.cuEventRecord(go, None)
    cu.cuGraphLaunch(executable, None)
    cu.cuEventSynchronize(done)
    assert list(built.out) == [8, 8, 8]
    cu.cuGraphExecEventRecordNodeSetEvent(executable, record, go)
    cu.cuGraphExecEventWaitNodeSetEvent(executable, wait, done)

    cu.cuGraphMemsetNodeSetParams(built.fill_node, ref(filling(built.x, 40, 3)))
    cu.cuGraphExecChildGraphNodeSetParams(executable, child, built.graph)
    cu.cuGraphLaunch(executable, None)
    cu.cuEventSynchronize(go)
    assert list(built.out) == [41, 41, 41]

    alone = cu.cuGraphInstantiateWithFlags(pointer, built.graph, 0)
    cu.cuGraphMemsetNodeSetParams(built.fill_node, ref(filling(built.x, 60, 3)))
    update = Update()
    cu.cuGraphExecUpdate_v2(alone, built.graph, ref(update))
    assert update.result == 0
    run(alone)
    assert list(built.out) == [61, 61, 61]
    refused(UPDATE_FAILURE, cu.cuGraphExecUpdate_v2, alone, parent, ref(update))
    assert update.result == 2  # Another topology.
    run(alone)
    assert list(built.out) == [61, 61, 61]
    assert download(built.x, i32, 3) == [61, 61, 61]


@in_process
def test_attributes_and_objects():
    start()
    built = Built()
    second = cu.cuGraphAddKernelNode_v2(pointer, built.graph, None, 0, ref(built.add))
    cooperative = 2
    value = (i32 * 16)(1)
    cu.cuGraphKernelNodeSetAttribute(built.add_node, cooperative, value)
    cu.cuGraphKernelNodeCopyAttributes(second, built.add_node)
    told = (i32 * 16)()
    cu.cuGraphKernelNodeGetAttribute(second, cooperative, told)
    assert told[0] == 1
    refused(Code.INVALID_VALUE, cu.cuGraphKernelNodeGetAttribute, second, 99, told)
    refused(Code.INVALID_VALUE, cu.cuGraphKernelNodeSetAttribute, built.fill_node, 2, value)

    destroyed = []
    destroy = Callback(destroyed.append)
    held = cu.cuUserObjectCreate(pointer, 77, ctypes.cast(destroy, pointer), 1, 1)
    move = 1
    cu.cuGraphRetainUserObject(built.graph, held, 1, move)
    cu.cuGraphRetainUserObject(built.graph, held, 2, 0)
    cu.cuGraphReleaseUserObject(built.graph, held, 2)
    refused(Code.INVALID_VALUE, cu.cuGraphReleaseUserObject, built.graph, held, 2)
    executable = cu.cuGraphInstantiateWithFlags(pointer, built.graph, 0)
    cu.cuGraphDestroy(built.graph)
    assert destroyed == []
    cu.cuGraphExecDestroy(executable)
    assert destroyed == [77]
