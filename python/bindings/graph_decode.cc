// rgpu_compile._graph: the wire's graph as plain Python values, for the process that compiles it.
// No PyTorch: what a name means, and whether it may be called, the server has decided before.
#include <pybind11/complex.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <complex>
#include <string_view>

#include "wire/graph.h"

namespace py = pybind11;

namespace {

using rgpu::wire::Arg;
using rgpu::wire::ArgKind;
using rgpu::wire::GraphArg;

py::object constant_of(const Arg& arg) {
  switch (arg.kind) {
    case ArgKind::kBool:
      return py::bool_(arg.integer != 0);
    case ArgKind::kInt:
    case ArgKind::kDevice:
      return py::int_(arg.integer);
    case ArgKind::kDouble:
      return py::float_(arg.real);
    case ArgKind::kComplex:
      return py::cast(std::complex<double>(arg.reals.at(0), arg.reals.at(1)));
    case ArgKind::kString:
      return py::str(arg.text);
    case ArgKind::kIntList:
      return py::cast(arg.integers);
    case ArgKind::kDoubleList:
      return py::cast(arg.reals);
    case ArgKind::kBoolList:
      return py::cast(std::vector<bool>(arg.integers.begin(), arg.integers.end()));
    default:
      return py::none();
  }
}

// ("value", number), ("list", [argument…]), ("device", index) or ("constant", Python value)
py::tuple argument_of(const GraphArg& arg) {
  if (arg.kind == GraphArg::Kind::kValue) return py::make_tuple("value", arg.value);
  if (arg.kind == GraphArg::Kind::kList) {
    py::list items;
    for (const GraphArg& item : arg.items) items.append(argument_of(item));
    return py::make_tuple("list", items);
  }
  const bool is_device = arg.constant.kind == ArgKind::kDevice;
  return py::make_tuple(is_device ? "device" : "constant", constant_of(arg.constant));
}

// {"inputs": [kind…], "nodes": [(name, overload, [argument…], values)…], "outputs": [value or
// None…],
//  "default_dtype": int}
py::dict decode(const py::bytes& encoded) {
  const std::string_view view = encoded;
  const auto* first = reinterpret_cast<const std::byte*>(view.data());
  const rgpu::Result<rgpu::wire::Graph> graph = rgpu::wire::decode_graph({first, view.size()});
  if (!graph) throw py::value_error(graph.error().message());
  py::list inputs;
  for (const auto input : graph->inputs) inputs.append(static_cast<int>(input));
  py::list nodes;
  for (const auto& node : graph->nodes) {
    py::list args;
    for (const GraphArg& arg : node.args) args.append(argument_of(arg));
    nodes.append(py::make_tuple(node.name, node.overload, args, node.value_count));
  }
  py::list outputs;
  for (const auto& output : graph->outputs) {
    outputs.append(output.is_none ? py::object(py::none()) : py::object(py::int_(output.value)));
  }
  py::dict decoded;
  decoded["inputs"] = inputs;
  decoded["nodes"] = nodes;
  decoded["outputs"] = outputs;
  decoded["default_dtype"] = static_cast<int>(graph->default_dtype);
  return decoded;
}

}  // namespace

PYBIND11_MODULE(_graph, m) {
  m.doc() = "Decodes and verifies graphs of the wire. ValueError for what is malformed.";
  m.def("decode", &decode);
}
