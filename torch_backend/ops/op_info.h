// OpInfo: what an op's schema says that every call of it needs, worked out once.
//
// Threading: immutable once made.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rgpu::backend {

enum class ArgRule : uint8_t {
  kStatic,     // Part of the key: ints, lists, flags, strings, dtypes.
  kImmediate,  // A Scalar or float: its type is part of the key, its value goes with the record.
};

// Whether an op on small integers can be repeated on the host (host_fold.h).
enum class HostFold : uint8_t {
  kNone,
  kComputes,    // A function of its inputs; an out= argument is overwritten.
  kOverwrites,  // Gives all elements of its target a new value, perhaps from no tensor at all.
  kUpdates,     // Changes some elements of its target.
};

struct OpInfo {
  explicit OpInfo(const c10::OperatorHandle& op);
  // One of the server's own ops, which no dispatcher knows: `like` lends its schema's place only.
  OpInfo(std::string builtin, std::vector<ArgRule> argument_rules, const c10::OperatorHandle& like);

  c10::OperatorHandle handle;
  const c10::FunctionSchema* schema = nullptr;
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"
  uint64_t schema_hash = 0;
  std::vector<ArgRule> rules;       // One per argument.
  std::vector<int32_t> alias_of;    // One per return: the argument it is, or -1.
  bool writes = false;              // Changes some argument.
  bool has_out = false;             // Some argument is an out=.
  bool random = false;              // Draws from a generator.
  bool asks_server = false;         // Its result's geometry depends on data.
  bool takes_host_indices = false;  // CPU index tensors are uploaded, as CUDA does.
  HostFold fold = HostFold::kNone;
  uint8_t switch_use = 0;  // Which numerics switches it may depend on (switches.h).
};

}  // namespace rgpu::backend
