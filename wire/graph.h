// Graph: a captured program of PyTorch ops, sent once and run by one record a call.
//
// A graph defines values, numbered from 0: its inputs, in order, and then what each node returns,
// in order (a list that an op returns counts as its items). A node's arguments are constants,
// earlier values, and lists of both; so are sizes, which nodes like rgpu::int_mul compute from
// integer inputs. A number where the schema has a tensor stands for a tensor of it, as in Python. A
// graph travels as the bytes of a storage (Command::kUpload) and not as a frame of its own.
//
// Threading: plain values.
// Errors:    kInvalidArgument for what does not verify or breaks a rule; the message names the
// node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/op_template.h"
#include "wire/status.h"

namespace rgpu::wire {

struct GraphArg {
  enum class Kind : uint8_t {
    kConstant = 0,  // `constant`
    kValue = 1,     // `value`
    kList = 2,      // `items`
  };
  Kind kind = Kind::kConstant;
  uint32_t value = 0;  // A value's number.
  Arg constant;        // Any kind but those of tensors and of what a record carries.
  std::vector<GraphArg> items;
  bool operator==(const GraphArg&) const = default;
};

struct GraphNode {
  std::string name;            // "aten::add"; "rgpu::…" are the server's own.
  std::string overload;        // "Tensor", "" …
  uint64_t schema_hash = 0;    // xxHash3 of the schema's text; 0: not checked.
  std::vector<GraphArg> args;  // Every argument of the schema, in order.
  uint32_t value_count = 1;    // How many values it defines.
  std::string source;          // The program line it comes from, for messages; may be empty.
  bool operator==(const GraphNode&) const = default;
};

struct GraphOutput {
  bool is_none = false;
  uint32_t value = 0;  // Unless it is none.
  bool operator==(const GraphOutput&) const = default;
};

enum class GraphInput : uint8_t { kTensor = 0, kInteger = 1, kFloat = 2 };

struct Graph {
  std::vector<GraphInput> inputs;
  std::vector<GraphNode> nodes;
  std::vector<GraphOutput> outputs;
  int8_t default_dtype = 6;  // As OpTemplate::default_dtype.
  bool operator==(const Graph&) const = default;
};

// Whether it keeps to the limits and to what the comments above say; decode_graph makes the same
// check.
[[nodiscard]] Status check_graph(const Graph& graph);
// One finished FlatBuffers buffer. The graph passes check_graph(). It may be over
// limits::kGraphSizeBytesMax: whoever sends it looks.
[[nodiscard]] std::vector<std::byte> encode_graph(const Graph& graph);
// `bytes` need no alignment.
[[nodiscard]] Result<Graph> decode_graph(std::span<const std::byte> bytes);

}  // namespace rgpu::wire
