#include "python/bindings/graphs.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bindings/translated.h"
#include "torch_backend/graphs/graph_builder.h"
#include "torch_backend/graphs/stored_graph.h"
#include "torch_backend/ops/shape_inference.h"

namespace py = pybind11;

namespace rgpu::backend {
namespace {

struct GraphValue {
  uint32_t number = 0;
};

bool is_list(const py::handle& object) {
  return py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object);
}

bool holds_values(const py::handle& list) {
  for (const py::handle item : list) {
    if (py::isinstance<GraphValue>(item)) return true;
  }
  return false;
}

const c10::TypePtr& without_optional(const c10::TypePtr& type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional == nullptr ? type : optional->getElementType();
}

bool is_tensor(const c10::TypePtr& type) {
  return without_optional(type)->isSubtypeOf(*c10::TensorType::get());
}

bool is_tensor_list(const c10::TypePtr& type) {
  const auto* list = without_optional(type)->castRaw<c10::ListType>();
  if (list == nullptr) return false;
  const c10::TypePtr& element = list->getElementType();
  return element->isSubtypeOf(*c10::TensorType::get()) ||
         element->isSubtypeOf(*c10::OptionalType::ofTensor());
}

wire::GraphArg integer_of(const py::handle& object) {
  return py::isinstance<GraphValue>(object) ? GraphBuilder::value(object.cast<GraphValue>().number)
                                            : GraphBuilder::integer(object.cast<int64_t>());
}

wire::GraphArg argument_of(const py::handle& object, const c10::Argument& argument) {
  if (py::isinstance<GraphValue>(object))
    return GraphBuilder::value(object.cast<GraphValue>().number);
  if (is_list(object) && (holds_values(object) || is_tensor_list(argument.type()))) {
    std::vector<wire::GraphArg> items;
    for (const py::handle item : object) {
      items.push_back(item.is_none() ? GraphBuilder::none() : integer_of(item));
    }
    return GraphBuilder::list(std::move(items));
  }
  if (object.is_none()) return GraphBuilder::none();
  const bool is_number = PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
                         PyBool_Check(object.ptr()) || PyComplex_Check(object.ptr());
  if (is_number && is_tensor(argument.type())) {
    return GraphBuilder::constant(torch::jit::toIValue(object, c10::NumberType::get()), argument);
  }
  return GraphBuilder::constant(torch::jit::toIValue(object, argument.type()), argument);
}

uint32_t add_node(GraphBuilder& builder, const std::string& name, const std::string& overload,
                  const py::list& args, uint32_t value_count, std::string source) {
  return translated([&] {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
    const auto& arguments = op.schema().arguments();
    TORCH_CHECK_VALUE(args.size() == arguments.size(), name, " takes ", arguments.size(),
                      " arguments, not ", args.size());
    std::vector<wire::GraphArg> packed;
    for (size_t i = 0; i < arguments.size(); ++i) {
      packed.push_back(argument_of(args[i], arguments[i]));
    }
    return builder.add_node(op, std::move(packed), value_count, std::move(source));
  });
}

std::vector<wire::GraphArg> integers_of(const py::list& list) {
  std::vector<wire::GraphArg> packed;
  for (const py::handle item : list) packed.push_back(integer_of(item));
  return packed;
}

uint32_t add_integer_node(GraphBuilder& builder, std::string name, const py::list& args) {
  return builder.add_integer_node(std::move(name), integers_of(args));
}

uint32_t add_layout_node(GraphBuilder& builder, const GraphValue& tensor, const py::list& strides) {
  return builder.add_layout_node(GraphBuilder::value(tensor.number), integers_of(strides));
}

py::bytes encode(const GraphBuilder& builder) {
  return translated([&] {
    const std::vector<std::byte> bytes = builder.encode();
    return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
}

c10::IValue scalar_of(const py::handle& object) {
  if (PyBool_Check(object.ptr())) return object.cast<bool>();
  if (PyFloat_Check(object.ptr())) return object.cast<double>();
  return object.cast<int64_t>();
}

// ("none",), ("new", sizes, strides, dtype, opaque), ("input", i), ("view_of_input" or
// "view_of_result", i, sizes, strides, dtype, offset), ("scalar", value)
GraphResult result_of(const py::tuple& row) {
  GraphResult result;
  const auto kind = row[0].cast<std::string>();
  const auto plan = [&](size_t first) {
    return plan_of(row[first].cast<std::vector<int64_t>>(),
                   row[first + 1].cast<std::vector<int64_t>>(),
                   row[first + 2].cast<c10::ScalarType>());
  };
  if (kind == "new") {
    result.kind = GraphResult::Kind::kNew;
    result.plan = plan(1);
    result.opaque = row[4].cast<bool>();
  } else if (kind == "input") {
    result.kind = GraphResult::Kind::kInput;
    result.index = row[1].cast<uint32_t>();
  } else if (kind == "view_of_input" || kind == "view_of_result") {
    result.kind = kind == "view_of_input" ? GraphResult::Kind::kViewOfInput
                                          : GraphResult::Kind::kViewOfResult;
    result.index = row[1].cast<uint32_t>();
    result.plan = plan(2);
    result.offset = row[5].cast<int64_t>();
  } else if (kind == "scalar") {
    result.kind = GraphResult::Kind::kScalar;
    result.scalar = scalar_of(row[1]);
  }
  return result;
}

std::shared_ptr<GraphResults> make_results(const std::vector<py::tuple>& rows, size_t visible,
                                           int64_t draws) {
  return translated([&] {
    std::vector<GraphResult> results;
    for (const py::tuple& row : rows) results.push_back(result_of(row));
    return std::make_shared<GraphResults>(std::move(results), visible, draws);
  });
}

std::shared_ptr<StoredGraph> make_graph(const py::bytes& encoded, std::string hash, int64_t mode,
                                        std::vector<bool> written, bool has_backward,
                                        std::shared_ptr<StoredGraph> forward) {
  return translated([&] {
    const std::string_view view = encoded;
    const auto* first = reinterpret_cast<const std::byte*>(view.data());
    GraphOptions options;
    options.mode = mode;
    options.written = std::move(written);
    options.has_backward = has_backward;
    return std::make_shared<StoredGraph>(std::vector<std::byte>(first, first + view.size()),
                                         std::move(hash), std::move(options), std::move(forward));
  });
}

// `args` is emptied, so that what only the call needed is freed while the results live.
py::list call(StoredGraph& graph, const py::list& args, const GraphResults& results) {
  return translated([&] {
    std::vector<at::Tensor> tensors;
    std::vector<c10::IValue> scalars;
    std::vector<py::object> given;
    for (const py::handle arg : args) {
      if (THPVariable_Check(arg.ptr())) {
        tensors.push_back(THPVariable_Unpack(arg.ptr()));
        given.push_back(py::reinterpret_borrow<py::object>(arg));
      } else {
        scalars.push_back(scalar_of(arg));
      }
    }
    std::vector<c10::IValue> returned;
    {
      const py::gil_scoped_release no_gil;
      returned = graph.call(tensors, scalars, results);
    }
    py::list out(returned.size());
    for (size_t i = 0; i < returned.size(); ++i) {
      const GraphResult& result = results.results[i];
      out[i] = result.kind == GraphResult::Kind::kInput
                   ? given[result.index]
                   : torch::jit::toPyObject(std::move(returned[i]));
    }
    args.attr("clear")();
    return out;
  });
}

py::dict figures_dict(const StoredGraph::Figures& figures) {
  constexpr std::array<const char*, 4> kStates = {"interpreting", "compiling", "compiled",
                                                  "failed"};
  const auto state = static_cast<size_t>(figures.state);
  py::dict d;
  d["state"] = state < kStates.size() ? kStates[state] : "unknown";
  d["reason"] = figures.reason;
  d["calls"] = figures.calls;
  d["compiled_calls"] = figures.compiled_calls;
  d["size_bytes"] = figures.size_bytes;
  d["compile_ms"] = figures.compile_ms;
  d["compiles"] = figures.compiles;
  return d;
}

py::object poll_figures(StoredGraph& graph) {
  return translated([&]() -> py::object {
    std::optional<StoredGraph::Figures> figures;
    {
      const py::gil_scoped_release no_gil;
      figures = graph.poll_figures();
    }
    return figures ? py::object(figures_dict(*figures)) : py::object(py::none());
  });
}

py::dict figures(StoredGraph& graph) {
  return translated([&] {
    StoredGraph::Figures found;
    {
      const py::gil_scoped_release no_gil;
      found = graph.figures();
    }
    return figures_dict(found);
  });
}

void load(StoredGraph& graph) {
  translated([&] {
    const py::gil_scoped_release no_gil;
    graph.load();
  });
}

}  // namespace

void bind_graphs(py::module_& m) {
  py::class_<GraphValue>(m, "GraphValue")
      .def(py::init([](uint32_t number) { return GraphValue{number}; }))
      .def_readonly("number", &GraphValue::number);
  py::class_<GraphBuilder>(m, "GraphBuilder")
      .def(py::init<>())
      .def("add_input",
           [](GraphBuilder& builder, int kind) {
             return builder.add_input(static_cast<wire::GraphInput>(kind));
           })
      .def("add_node", &add_node)
      .def("add_integer_node", &add_integer_node)
      .def("add_layout_node", &add_layout_node)
      .def("add_output", &GraphBuilder::add_output)
      .def("encode", &encode);
  py::class_<GraphResults, std::shared_ptr<GraphResults>>(m, "GraphResults")
      .def(py::init(&make_results));
  py::class_<StoredGraph, std::shared_ptr<StoredGraph>>(m, "StoredGraph", py::dynamic_attr())
      .def(py::init(&make_graph))
      .def("load", &load)
      .def("call", &call)
      .def("figures", &figures)
      .def("poll_figures", &poll_figures)
      .def_property_readonly("hash", &StoredGraph::hash)
      .def_property_readonly("sent_bytes", &StoredGraph::sent_bytes);
  m.def("is_device_dependent", &is_device_dependent);
}

}  // namespace rgpu::backend
