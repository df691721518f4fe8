// OpLauncher: runs one record of an op on one stream: stack, call, results.
//
// Threading: one launcher a stream, used by the thread that runs it.
// Errors:    an op's failure poisons what it would have made or changed. A Status is for what a
//            correct client cannot have sent (a tensor outside its storage), and ends the session.
#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/engine.h"
#include "server/torch/engine_state.h"
#include "server/torch/op_plan.h"
#include "server/torch/slot.h"
#include "server/torch/stored_graph.h"

namespace rgpu::server {

struct OpRecord {
  const OpPlan* plan = nullptr;
  std::span<SlotPtr> handles;  // As many as the plan says.
  const std::byte* immediates = nullptr;
  uint32_t location = 0;
};

class OpLauncher {
 public:
  OpLauncher(EngineState& state, uint32_t stream)
      : state_(state),
        stream_(stream),
        device_(state.device(wire::device_of_stream(stream))),
        ledger_(state.ledger_of(stream)) {}
  // Appends the record's reply, if it has one.
  [[nodiscard]] Status launch(const OpRecord& record, std::vector<OutgoingReply>& replies);

 private:
  class Immediates;
  class SeededNodes;

  static void reply_failed(const OpRecord& record, wire::RemoteError error,
                           std::vector<OutgoingReply>& replies);
  // An allocation's error has no program line of its own: it gets the first op's that needs it.
  [[nodiscard]] PoisonPtr placed(const PoisonPtr& poison, const OpRecord& record);
  void answer(const OpRecord& record, wire::Reply reply, std::vector<OutgoingReply>& replies);
  [[nodiscard]] bool skip(const OpRecord& record, std::vector<OutgoingReply>& replies);
  [[nodiscard]] Status build_stack(const OpRecord& record);
  [[nodiscard]] Status push(const ArgPlan& arg, const OpRecord& record, Immediates& immediates);
  [[nodiscard]] Result<at::Tensor> input(const ArgPlan& arg, const OpRecord& record,
                                         Immediates& immediates);
  [[nodiscard]] Result<at::Tensor> sparse_input(const ArgPlan& arg, const OpRecord& record,
                                                Immediates& immediates);
  [[nodiscard]] Status push_tensor_list(const ArgPlan& arg, const OpRecord& record,
                                        Immediates& immediates);
  // What the op is called for: its results, or the builtin's effect.
  [[nodiscard]] Status run(const OpRecord& record, std::vector<OutgoingReply>& replies);
  void run_memory_builtin(const OpPlan& plan);
  void call(const OpPlan& plan);
  void call_seeded(const OpPlan& plan);
  void call_graph_backward(const OpRecord& record);
  void run_graph_builtin(const OpRecord& record);
  void provide_graph(const OpRecord& record);
  void call_stored_graph(const OpRecord& record);
  void tell_graph_state(const OpRecord& record);
  [[nodiscard]] static StoredGraph::Call describe_call(const OpRecord& record,
                                                       const StoredGraph& graph);
  void run_artefact(StoredGraph& graph, Artefact& artefact, std::vector<c10::IValue>&& inputs);
  void mark_results(const OpRecord& record);
  void seed(uint64_t offset);
  static void use_default_dtype(c10::ScalarType dtype);
  void bind_results(const OpRecord& record, wire::Reply* reply);
  void poison_all(const OpRecord& record, const PoisonPtr& poison);
  void fail(const OpRecord& record, wire::RemoteError error, std::vector<OutgoingReply>& replies);
  void recheck_written(const OpRecord& record);

  EngineState& state_;
  const uint32_t stream_;
  const c10::Device device_;
  MemoryLedger& ledger_;
  torch::jit::Stack stack_;
  std::vector<at::Tensor> leaves_;  // Of the record that runs, if it keeps its graph.
  std::vector<at::Tensor> results_;
  std::vector<wire::Arg> values_;
  uint32_t next_input_ = 0;
  uint64_t seed_ = 0;
  uint64_t offset_ = 0;
  bool ran_compiled_ = false;  // The stored graph of this record.
};

}  // namespace rgpu::server
