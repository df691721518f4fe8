#include "torch_backend/distributed/host_staged_backend.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <utility>

#include "torch_backend/device/storage.h"
#include "torch_backend/device/stream.h"

namespace rgpu::backend {
namespace {

using Tensors = HostStagedBackend::Tensors;
using TensorLists = HostStagedBackend::TensorLists;
using WorkPtr = HostStagedBackend::WorkPtr;

// The host's copies of one collective's tensors, and what becomes of them.
class HostCopies {
 public:
  enum class Use : uint8_t { kRead, kWrite, kReadWrite };

  at::Tensor of(const at::Tensor& tensor, Use use) {
    if (tensor.device().type() != kDeviceType) return tensor;
    const at::Tensor host =
        at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
    if (use != Use::kWrite) {
      host.copy_(tensor, /*non_blocking=*/true);
      read_streams_.insert(current_stream(tensor.device().index()));
    }
    if (use != Use::kRead) written_.emplace_back(host, tensor);
    return host;
  }
  Tensors of(const Tensors& tensors, Use use) {
    Tensors hosts;
    for (const at::Tensor& tensor : tensors) hosts.push_back(of(tensor, use));
    return hosts;
  }
  TensorLists of(const TensorLists& lists, Use use) {
    TensorLists hosts;
    for (const Tensors& list : lists) hosts.push_back(of(list, use));
    return hosts;
  }
  // What was asked for with kRead is there afterwards: one wait a device.
  void finish_reading() const {
    for (const uint32_t stream : read_streams_) synchronize_stream(stream);
  }
  void write_back() const {
    for (const auto& [host, tensor] : written_) tensor.copy_(host);
  }
  [[nodiscard]] Tensors outputs() const {
    Tensors tensors;
    for (const auto& [host, tensor] : written_) tensors.push_back(tensor);
    return tensors;
  }

 private:
  std::set<uint32_t> read_streams_;
  std::vector<std::pair<at::Tensor, at::Tensor>> written_;  // Host, device.
};

using Use = HostCopies::Use;

// A collective under way in the other backend: done when its results are back on the device.
class StagedWork final : public c10d::Work {
 public:
  StagedWork(WorkPtr inner, HostCopies copies)
      : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), copies_(std::move(copies)) {}

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return copies_.outputs(); }
  void synchronize() override { (void)wait(kNoTimeout); }
  void abort() override { inner_->abort(); }
  bool wait(std::chrono::milliseconds timeout) override {
    const bool done = inner_->wait(timeout);
    if (done) write_back();
    return done;
  }
  // Completed in the other backend's thread, so that who waits for several overlaps them.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const Tensors outputs = copies_.outputs();
    std::vector<c10::Device> devices;
    if (!outputs.empty()) devices.push_back(outputs.front().device());
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::move(devices));
    auto self = c10::intrusive_ptr<StagedWork>::unsafe_reclaim_from_nonowning(this);
    inner_->getFuture()->addCallback([future, self, outputs](c10::ivalue::Future& inner) {
      if (inner.hasError()) {
        future->setError(inner.exception_ptr());
        return;
      }
      try {
        self->write_back();
        future->markCompleted(outputs);
      } catch (...) {
        future->setError(std::current_exception());
      }
    });
    return future;
  }

 private:
  void write_back() {
    std::call_once(written_, [this] { copies_.write_back(); });
  }

  const WorkPtr inner_;
  const HostCopies copies_;
  std::once_flag written_;
};

// DistributedDataParallel's own statistics: when the program issued things, since it waits for
// none.
class IssueTimer final : public c10d::Timer {
 public:
  explicit IssueTimer(c10::Device /*device*/) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const std::optional<int64_t> began = getTimestamp(start);
    const std::optional<int64_t> ended = getTimestamp(end);
    if (!began || !ended || *ended < *began) return std::nullopt;
    return *ended - *began;
  }
};

// A collective of the other backend over tensors that it changes in place.
template <auto Collective, typename... Options>
WorkPtr in_place(c10d::Backend& host, Tensors& tensors, Use use, const Options&... options) {
  HostCopies copies;
  Tensors hosts = copies.of(tensors, use);
  copies.finish_reading();
  return c10::make_intrusive<StagedWork>((host.*Collective)(hosts, options...), std::move(copies));
}

// One that reads its inputs and writes its outputs; tensors, lists of them, or lists of lists.
template <auto Collective, typename Outputs, typename Inputs, typename... Options>
WorkPtr across(c10d::Backend& host, Outputs& outputs, Inputs& inputs, Options&... options) {
  HostCopies copies;
  Outputs host_outputs = copies.of(outputs, Use::kWrite);
  Inputs host_inputs = copies.of(inputs, Use::kRead);
  copies.finish_reading();
  return c10::make_intrusive<StagedWork>((host.*Collective)(host_outputs, host_inputs, options...),
                                         std::move(copies));
}

}  // namespace

void register_reducer_timer() {
  c10d::TimerRegistry()->Register(kDeviceType, [](c10::Device device) {
    return std::unique_ptr<c10d::Timer>(std::make_unique<IssueTimer>(device));
  });
}

HostStagedBackend::HostStagedBackend(c10::intrusive_ptr<c10d::Backend> host)
    : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}

WorkPtr HostStagedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const Use use = options.rootRank == getRank() ? Use::kRead : Use::kWrite;
  return in_place<&Backend::broadcast>(*host_, tensors, use, options);
}

WorkPtr HostStagedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return in_place<&Backend::allreduce>(*host_, tensors, Use::kReadWrite, options);
}

WorkPtr HostStagedBackend::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) {
  return in_place<&Backend::allreduce_coalesced>(*host_, tensors, Use::kReadWrite, options);
}

WorkPtr HostStagedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Use use = options.rootRank == getRank() ? Use::kReadWrite : Use::kRead;
  return in_place<&Backend::reduce>(*host_, tensors, use, options);
}

WorkPtr HostStagedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  return across<&Backend::allgather>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) {
  return across<&Backend::_allgather_base>(*host_, output, input, options);
}

WorkPtr HostStagedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                               const c10d::AllgatherOptions& options) {
  return across<&Backend::allgather_coalesced>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  return across<&Backend::allgather_into_tensor_coalesced>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& options) {
  return across<&Backend::gather>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                   const c10d::ScatterOptions& options) {
  return across<&Backend::scatter>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                          const c10d::ReduceScatterOptions& options) {
  return across<&Backend::reduce_scatter>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
  return across<&Backend::_reduce_scatter_base>(*host_, output, input, options);
}

WorkPtr HostStagedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return across<&Backend::reduce_scatter_tensor_coalesced>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<int64_t>& output_splits,
                                         std::vector<int64_t>& input_splits,
                                         const c10d::AllToAllOptions& options) {
  return across<&Backend::alltoall_base>(*host_, output, input, output_splits, input_splits,
                                         options);
}

WorkPtr HostStagedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& options) {
  return across<&Backend::alltoall>(*host_, outputs, inputs, options);
}

WorkPtr HostStagedBackend::send(Tensors& tensors, int target, int tag) {
  return in_place<&Backend::send>(*host_, tensors, Use::kRead, target, tag);
}

WorkPtr HostStagedBackend::recv(Tensors& tensors, int source, int tag) {
  return in_place<&Backend::recv>(*host_, tensors, Use::kWrite, source, tag);
}

WorkPtr HostStagedBackend::recvAnysource(Tensors& tensors, int tag) {
  return in_place<&Backend::recvAnysource>(*host_, tensors, Use::kWrite, tag);
}

}  // namespace rgpu::backend
