// GraphBuilder: a captured program as a graph of wire/graph.h, node by node.
//
// Threading: one thread at a time.
// Errors:    ValueError for what the format cannot hold, with what it is.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/graph.h"

namespace rgpu::backend {

class GraphBuilder {
 public:
  GraphBuilder();  // The default dtype is the thread's.

  // The numbers of values: of the input, and of the first one that the node defines.
  uint32_t add_input(wire::GraphInput kind);
  uint32_t add_node(const c10::OperatorHandle& op, std::vector<wire::GraphArg> args,
                    uint32_t value_count, std::string source);
  // "rgpu::int_add" and the like: integers of integers.
  uint32_t add_integer_node(std::string name, std::vector<wire::GraphArg> args);
  // The value with these strides, copied if it has others.
  uint32_t add_layout_node(wire::GraphArg tensor, std::vector<wire::GraphArg> strides);
  void add_output(uint32_t value);

  // The argument of the schema as a constant.
  [[nodiscard]] static wire::GraphArg constant(const c10::IValue& value,
                                               const c10::Argument& argument);
  [[nodiscard]] static wire::GraphArg value(uint32_t number);
  [[nodiscard]] static wire::GraphArg integer(int64_t number);
  [[nodiscard]] static wire::GraphArg none() { return {}; }
  [[nodiscard]] static wire::GraphArg list(std::vector<wire::GraphArg> items);

  [[nodiscard]] std::vector<std::byte> encode() const;

 private:
  uint32_t add(wire::GraphNode node);
  wire::Graph graph_;
  uint32_t value_count_ = 0;
};

}  // namespace rgpu::backend
