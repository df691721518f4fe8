// GraphProgram: a graph of wire/graph.h made ready to run: operators looked up, constants boxed,
// and for each node which values nobody needs afterwards.
//
// Threading: made by the stream that loads it, then constant; any stream runs it.
// Errors:    load_program() refuses a graph whose ops are unknown, may not be called, have another
//            schema than the client's, or do not take such arguments; the message names the node.
//            run_program() throws what the op throws, with the node and its program line added.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/torch/cpu_gaps.h"
#include "wire/graph.h"
#include "wire/status.h"

namespace rgpu::server {

struct ProgramArg {
  enum class Kind : uint8_t { kConstant, kValue, kTensorList, kOptionalTensorList, kIntList };
  Kind kind = Kind::kConstant;
  bool wants_tensor = false;  // Of a value: a number becomes a tensor, as in Python,
  bool wants_float = false;   // and an integer a float.
  uint32_t value = 0;
  c10::IValue constant;
  std::vector<ProgramArg> items;  // Of a list: constants and values.
};

// Integers are computed here: they are sizes, and no op of PyTorch's takes two of them.
enum class IntOp : uint8_t { kNone, kAdd, kMul, kFloorDiv, kMod, kMin, kMax, kPow };
// "rgpu::lay_out"(Tensor, int[] strides) is the other op of the server's own: the tensor with these
// strides, copied if it has others.

struct ProgramNode {
  std::optional<c10::OperatorHandle> op;
  GapFiller gap_filler = nullptr;  // Calls the op, if not null.
  IntOp int_op = IntOp::kNone;     // Unless `op`; kNone: lay_out.
  bool random = false;
  std::vector<ProgramArg> args;
  uint32_t first_value = 0;
  uint32_t value_count = 0;
  std::vector<uint32_t> last_uses;  // Values that no later node and no output needs.
  std::string name;                 // "aten::add.Tensor"
  std::string source;
};

struct GraphProgram {
  std::vector<wire::GraphInput> inputs;
  std::vector<ProgramNode> nodes;
  std::vector<wire::GraphOutput> outputs;
  uint32_t value_count = 0;
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  std::string random_op;  // The first that draws numbers, or "".
  size_t size_bytes = 0;  // About.
};

// What it needs beside the graph.
struct ProgramContext {
  c10::DeviceType device_type{};
  std::string client_torch_version;
};
[[nodiscard]] Result<std::shared_ptr<const GraphProgram>> load_program(
    const wire::Graph& graph, const ProgramContext& context);

// Sets the generator for one random node after the other.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual void before() = 0;
  // The node drew numbers for at most so many elements.
  virtual void after(int64_t elements) = 0;
};

// The values of the outputs; undefined tensors for those that are none. `inputs` are tensors and
// integers as the program says; they are let go as soon as nobody needs them.
[[nodiscard]] std::vector<c10::IValue> run_program(const GraphProgram& program,
                                                   std::vector<c10::IValue> inputs,
                                                   RandomSource& random);

}  // namespace rgpu::server
