// StoredGraph: a captured graph (wire/graph.h) that a server keeps, and its calls: one record each.
//
// The server is asked for the graph by its hash first, and gets its bytes only if it has none: one
// or two waits when a graph is made, and again when a call finds that the session is another one. A
// call waits for nothing.
//
// Threading: any thread; calls may run side by side. No GIL.
// Errors:    what the server refuses of a graph (an op it does not know, malformed arguments) is
//            raised by load(), with the node named; what fails in a call, as for every op, by the
//            next wait that depends on it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "torch_backend/ops/op_memory.h"

namespace rgpu::backend {

// What a call returns in one place.
struct GraphResult {
  enum class Kind : uint8_t {
    kNone,
    kNew,           // What the graph's next output is, as `plan` says.
    kInput,         // The tensor input `index` itself.
    kViewOfInput,   // Over the storage of tensor input `index`.
    kViewOfResult,  // Over the storage of result `index`, which comes earlier or later and is kNew.
    kScalar         // `scalar`
  };
  Kind kind = Kind::kNone;
  uint32_t index = 0;
  TensorPlan plan;      // Of a view: its sizes, strides and dtype.
  bool opaque = false;  // Of kNew: has another form on some devices; only other graphs read it.
  int64_t offset = 0;   // Of a view: elements after the first one of what it is a view of.
  c10::IValue scalar;
};

// The results of every call with the same integers; made once, then constant.
struct GraphResults {
  GraphResults(std::vector<GraphResult> all, size_t returned, int64_t drawn);
  const std::vector<GraphResult> results;
  const size_t visible;  // So many are returned; others are there for views of them.
  const int64_t draws;   // How far a call moves the generator: a multiple of 4; 0: not at all.
  const int64_t id;      // Of the process.
};

struct GraphOptions {
  enum Mode : int64_t { kCompiles = 1, kUncached = 2 };
  int64_t mode = 0;           // Bits of Mode.
  std::vector<bool> written;  // For each tensor input: the graph changes it in place.
  bool has_backward = false;
};

class StoredGraph {
 public:
  // As the server counts and sees it.
  enum class State : int64_t { kInterpreting = 0, kCompiling = 1, kCompiled = 2, kFailed = 3 };
  struct Figures {
    State state = State::kInterpreting;
    std::string reason;
    int64_t calls = 0;
    int64_t compiled_calls = 0;
    int64_t size_bytes = 0;
    int64_t compile_ms = 0;
    int64_t compiles = 0;
  };

  // `hash`: SHA-256 of `encoded`, 64 hex digits. `forward`: of a backward graph, else null.
  StoredGraph(std::vector<std::byte> encoded, std::string hash, GraphOptions options,
              std::shared_ptr<StoredGraph> forward);

  // Sends what the server lacks, unless the session has the graph.
  void load();
  // `tensors` and `scalars` (integers and floats): the graph's inputs of either kind, in order.
  [[nodiscard]] std::vector<c10::IValue> call(const std::vector<at::Tensor>& tensors,
                                              const std::vector<c10::IValue>& scalars,
                                              const GraphResults& results);
  // Waits.
  [[nodiscard]] Figures figures();
  // Does not: asks, and says what the last question was answered, if it was.
  [[nodiscard]] std::optional<Figures> poll_figures();

  [[nodiscard]] const std::string& hash() const { return hash_; }
  [[nodiscard]] uint64_t sent_bytes() const;  // Of the graph itself; 0: the server had it.

 private:
  [[nodiscard]] at::Tensor loaded();
  [[nodiscard]] bool find(const at::Tensor& forward);
  void send(const at::Tensor& forward);
  [[nodiscard]] std::vector<c10::IValue> append(const std::vector<at::Tensor>& tensors,
                                                const std::vector<c10::IValue>& scalars,
                                                const GraphResults& results);
  [[nodiscard]] c10::List<at::Tensor> with_values(const std::vector<at::Tensor>& tensors) const;
  [[nodiscard]] std::unique_ptr<OpEntry> describe_call(const torch::jit::Stack& stack,
                                                       const GraphResults& results) const;
  [[nodiscard]] uint64_t ask();

  const std::vector<std::byte> encoded_;
  const std::string hash_;
  const GraphOptions options_;
  const std::shared_ptr<StoredGraph> forward_;
  const int64_t id_;

  mutable std::mutex mutex_;
  at::Tensor graph_;         // A one-byte tensor that holds the graph's handle.
  uint32_t generation_ = 0;  // Of the session that has it.
  uint64_t sent_bytes_ = 0;
  uint64_t question_ = 0;  // The request of poll_figures() that is under way.
  uint32_t question_generation_ = 0;
};

}  // namespace rgpu::backend
