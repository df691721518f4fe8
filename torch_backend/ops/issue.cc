#include "torch_backend/ops/issue.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <unordered_map>

#include "torch_backend/device/client.h"
#include "torch_backend/device/generator.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/stream.h"
#include "torch_backend/device/switches.h"
#include "torch_backend/device/trace.h"
#include "torch_backend/ops/host_fold.h"
#include "torch_backend/ops/host_op.h"
#include "torch_backend/ops/out_variant.h"
#include "torch_backend/ops/shape_inference.h"
#include "torch_backend/ops/sparse_tensor.h"
#include "wire/limits.h"

namespace rgpu::backend {
namespace {

// Autograd hands a device it does not know to a thread of its own, which costs tens of µs a
// backward; keep backward in its caller's thread. Once per thread.
void prepare_thread() {
  static thread_local bool prepared = false;
  if (prepared) [[likely]]
    return;
  prepared = true;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

// CUDA takes index tensors from the host; so they are uploaded here.
void upload_host_indices(const OpInfo& op, torch::jit::Stack& stack) {
  const c10::Device device = stack[stack.size() - op.rules.size()].toTensor().device();
  c10::IValue& indices = stack[stack.size() - op.rules.size() + 1];
  const c10::ArrayRef<c10::IValue> items = indices.toListRef();
  const auto on_host = [](const c10::IValue& item) {
    return item.isTensor() && item.toTensor().defined() && item.toTensor().device().is_cpu();
  };
  if (std::none_of(items.begin(), items.end(), on_host)) return;
  c10::impl::GenericList moved(indices.toList().elementType());
  for (const c10::IValue& item : items) {
    moved.push_back(on_host(item) ? c10::IValue(item.toTensor().to(device)) : item);
  }
  indices = std::move(moved);
}

// What the server replied, put in the places of the plans. The entry itself may be gone by now.
void fill_from_reply(const wire::Reply& reply, std::vector<TensorPlan>& tensors,
                     std::vector<ReturnPlan>& returns) {
  size_t next_value = 0;
  size_t next_meta = 0;
  const auto fill = [&](TensorPlan& plan) {
    TORCH_CHECK(next_meta < reply.metas.size(), "rgpu: the server's reply lacks a result");
    const wire::TensorMeta& meta = reply.metas[next_meta++];
    plan = plan_of(meta.sizes, meta.strides, static_cast<at::ScalarType>(meta.dtype));
  };
  for (ReturnPlan& result : returns) {
    if (result.kind == ReturnPlan::Kind::kConstant) {
      TORCH_CHECK(next_value < reply.values.size(), "rgpu: the server's reply lacks a value");
      result.constant = value_of(reply.values[next_value++]);
    } else if (result.kind == ReturnPlan::Kind::kTensor) {
      fill(tensors[result.index]);
    } else if (result.kind == ReturnPlan::Kind::kTensorList) {  // The last one.
      const size_t length = reply.metas.size() - std::min(next_meta, reply.metas.size());
      TORCH_CHECK(length <= result.count, "rgpu: the server's reply has ", length, " results");
      result.count = static_cast<uint32_t>(length);
      for (uint32_t i = 0; i < result.count; ++i) fill(tensors[result.index + i]);
    }
  }
}

// Indices that belong to an argument are aliases of its own, so that neither tensor sees the other
// one resize them.
at::Tensor make_sparse(const SparsePlan& plan, const c10::IValue* arguments,
                       std::vector<at::Tensor>&& made) {
  if (made.size() > 1) return sparse_tensor(plan.form, plan.sizes, made);
  std::vector<at::Tensor> parts = components_of(arguments[plan.argument].toTensor());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (at::Tensor& part : parts) part = part.alias();
  parts.back() = std::move(made.front());
  return sparse_tensor(plan.form, plan.sizes, parts);
}

c10::IValue make_result(const ReturnPlan& plan, const std::vector<TensorPlan>& tensors,
                        c10::IValue* arguments, wire::Handle& handle, const Issued& issued) {
  const auto next = [&](const TensorPlan& tensor) {
    return tensor.defined ? make_tensor(tensor, handle++, issued) : at::Tensor();
  };
  switch (plan.kind) {
    case ReturnPlan::Kind::kArgument:
      return std::move(arguments[plan.index]);
    case ReturnPlan::Kind::kTensor:
      return next(tensors[plan.index]);
    case ReturnPlan::Kind::kTensorList: {
      c10::List<at::Tensor> list;
      list.reserve(plan.count);
      for (uint32_t i = 0; i < plan.count; ++i) list.push_back(next(tensors[plan.index + i]));
      return list;
    }
    case ReturnPlan::Kind::kSparse: {
      std::vector<at::Tensor> made;
      for (uint32_t i = 0; i < plan.count; ++i) made.push_back(next(tensors[plan.index + i]));
      return make_sparse(*plan.sparse, arguments, std::move(made));
    }
    default:
      return plan.constant;
  }
}

}  // namespace

c10::IValue value_of(const wire::Arg& value) {
  switch (value.kind) {
    case wire::ArgKind::kBool:
      return value.integer != 0;
    case wire::ArgKind::kInt:
      return value.integer;
    case wire::ArgKind::kDouble:
      return value.real;
    case wire::ArgKind::kComplex:
      TORCH_CHECK(value.reals.size() == 2, "rgpu: the server sent a malformed complex number");
      return c10::complex<double>(value.reals[0], value.reals[1]);
    default:
      TORCH_CHECK(false, "rgpu: the server sent a value of an unknown kind");
  }
}

// Returns the handle after the last one that a result has.
wire::Handle replace_arguments(const OpInfo& op, torch::jit::Stack& stack,
                               const std::vector<TensorPlan>& tensors,
                               const std::vector<ReturnPlan>& returns, const Issued& issued) {
  const size_t count = op.rules.size();
  c10::IValue* arguments = stack.data() + (stack.size() - count);
  wire::Handle handle = issued.first_new_handle;
  if (returns.size() == 1) [[likely]] {
    c10::IValue result = make_result(returns[0], tensors, arguments, handle, issued);
    torch::jit::drop(stack, count);
    stack.push_back(std::move(result));
    return handle;
  }
  c10::SmallVector<c10::IValue, 8> results;
  for (const ReturnPlan& plan : returns) {
    results.push_back(make_result(plan, tensors, arguments, handle, issued));
  }
  torch::jit::drop(stack, count);
  for (c10::IValue& result : results) stack.push_back(std::move(result));
  return handle;
}

namespace {

// The call as the server answers it: what the handles that it reserved turned out to be.
void replace_from_reply(const OpInfo& op, torch::jit::Stack& stack, const OpEntry& entry,
                        const Issued& issued, IssueLock& lock) {
  Client& client = Client::get();
  std::vector<TensorPlan> tensors = entry.tensors;
  std::vector<ReturnPlan> returns = entry.returns;
  const wire::Handle end = issued.first_new_handle + entry.new_handle_count;
  wire::Handle bound = issued.first_new_handle;
  lock.unlock();  // From here on the entry may be gone.
  // The handles that no tensor frees: of a shorter list, or all if the op failed.
  const auto free_rest = c10::make_scope_exit([&] {
    for (wire::Handle handle = bound; handle < end; ++handle) {
      client.release(issued.generation, handle);
    }
  });
  fill_from_reply(client.wait(issued.request), tensors, returns);
  bound = replace_arguments(op, stack, tensors, returns, issued);
}

// An out= that the call also reads would have another shape at each look.
void refuse_resized_input(const OpInfo& op, const ResizePlan& resize,
                          const torch::jit::Stack& stack) {
  const size_t first = stack.size() - op.rules.size();
  const c10::TensorImpl* out = stack[first + resize.argument].toTensor().unsafeGetTensorImpl();
  const auto is_out = [&](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().unsafeGetTensorImpl() == out;
  };
  for (size_t i = 0; i < op.rules.size(); ++i) {
    const c10::IValue& argument = stack[first + i];
    bool reads = i != resize.argument && is_out(argument);
    if (argument.isTensorList()) {
      const auto items = argument.toListRef();
      reads = std::any_of(items.begin(), items.end(), is_out);
    }
    TORCH_CHECK(
        !reads,
        "unsupported operation: some elements of the input tensor and the written-to tensor "
        "refer to a single memory location. Please clone() the tensor before performing "
        "the operation.");
  }
}

}  // namespace

// Beside those that it writes to.
static bool takes_tensors(const OpInfo& op) {
  const auto& arguments = op.schema->arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& a) {
    return !a.is_out() && a.type()->str().find("Tensor") != std::string::npos;
  });
}

void apply_resizes(const OpInfo& op, const std::vector<ResizePlan>& resizes,
                   torch::jit::Stack& stack) {
  for (const ResizePlan& resize : resizes) {
    const at::Tensor& out = stack[stack.size() - op.rules.size() + resize.argument].toTensor();
    refuse_resized_input(op, resize, stack);
    // PyTorch's own warning; factories are silent.
    if (takes_tensors(op)) at::native::resize_output_check(out, resize.sizes);
    const TensorPlan plan = plan_of(resize.sizes, resize.strides, out.scalar_type());
    c10::TensorImpl* impl = out.unsafeGetTensorImpl();
    const size_t needed =
        plan.size_bytes + static_cast<size_t>(impl->storage_offset()) * impl->itemsize();
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (storage->nbytes() < needed) resize_storage(storage, needed);
    impl->set_sizes_and_strides(resize.sizes, resize.strides, impl->storage_offset());
  }
}

void wait_if_debug(IssueLock& lock, const Issued& issued) {
  if (!Client::debug()) [[likely]]
    return;
  lock.unlock();
  Client::get().synchronize_stream(current_stream(issued.device));
}

OpMemory& op_memory() {
  static OpMemory* memory = new OpMemory();  // Leaked: ops may run while statics are destroyed.
  return *memory;
}

CallKey& thread_key() {
  static thread_local CallKey key;
  return key;
}

uint64_t context_bits() {
  return static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) |
         (static_cast<uint64_t>(static_cast<uint8_t>(current_device())) << 8);
}

at::Tensor make_tensor(const TensorPlan& plan, wire::Handle handle, const Issued& issued) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(make_storage(handle, issued.generation, false, plan.size_bytes, issued.device,
                                plan.knowable)),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), plan.dtype);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (plan.contiguous) [[likely]] {
    // The sizes of a new tensor are [0]; a vector of that shape needs nothing.
    if (plan.sizes.size() != 1 || plan.sizes[0] != 0) impl->set_sizes_contiguous(plan.sizes);
  } else {
    impl->set_sizes_and_strides(plan.sizes, plan.strides);
  }
  return tensor;
}

OpEntry* remember(std::unique_ptr<OpEntry> entry, const CallKey& key) {
  entry->key.assign(key.words().begin(), key.words().end());
  entry->hash = key.hash();
  OpMemory& memory = op_memory();
  if (memory.size() + 1 >= limits::kTemplatesMax) {
    memory.forget();
    raise_if_error(Client::get().session().forget_templates(Client::hooks().observer()));
  }
  return memory.insert(std::move(entry));
}

Issued append_call(OpEntry& entry, CallKey& key) {
  Client& client = Client::get();
  Session& session = client.session();
  Issued issued;
  issued.generation = client.generation();
  issued.device = entry.device;
  if (SwitchWatch::concerns(entry.op->switch_use)) {
    SwitchWatch::get().check(entry.op->switch_use, issued.generation);
  }
  if (entry.number == 0 || entry.generation != issued.generation) [[unlikely]] {
    Result<uint32_t> number = session.define_template(entry.encoded);
    if (!number) raise_if_error(number.error());
    entry.number = *number;
    entry.generation = issued.generation;
  }
  for (c10::StorageImpl* storage : key.fresh()) (void)announce(storage);
  if (entry.new_handle_count != 0) {
    issued.first_new_handle = session.new_handles(entry.new_handle_count);
    key.append_handles(issued.first_new_handle, entry.new_handle_count);
  }
  if (entry.description.random) {
    const int64_t drawn = entry.draws_exactly ? entry.random_reserve
                                              : std::max(entry.random_reserve, key.numel_max());
    const PhiloxState state =
        generator_for(key.generator(), entry.device).reserve(static_cast<uint64_t>(drawn));
    key.append_u64(state.seed);
    key.append_u64(state.offset);
  }
  if (entry.replies) {
    Result<uint64_t> request = session.new_request();
    if (!request) raise_if_error(request.error());
    issued.request = *request;
    key.append_u64(issued.request);
  }
  const Record record{entry.number, Client::hooks().location(), key.handles(), key.immediates()};
  const Status status =
      session.append(current_stream(entry.device), record, Client::hooks().observer());
  if (!status.ok()) [[unlikely]] {
    if (entry.replies) session.abandon_request(issued.request);
    raise_if_error(status);
  }
  return issued;
}

void issue(const OpInfo& op, torch::jit::Stack* stack) {
  const CallTracer traced(op.name.c_str());
  prepare_thread();
  if (op.takes_host_indices) upload_host_indices(op, *stack);
  Client& client = Client::get();
  (void)client.session();
  CallKey& key = thread_key();
  key.build(op, *stack, context_bits());
  IssueLock lock;
  OpEntry* entry = op_memory().find(key.words(), key.hash());
  if (entry == nullptr) [[unlikely]] {
    lock.unlock();
    if (goes_tensor_by_tensor(op, *stack)) {
      op.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
      return;
    }
    std::unique_ptr<OpEntry> learnt = infer(op, *stack);
    key.build(op, *stack, context_bits());  // Meta kernels may have issued ops of their own.
    lock.lock();
    entry = remember(std::move(learnt), key);
  }
  if (entry->out_unknown) [[unlikely]] {
    lock.unlock();
    call_out_variant(op, stack);
    return;
  }
  if (!entry->resizes.empty()) [[unlikely]] {
    const std::vector<ResizePlan> resizes = entry->resizes;
    lock.unlock();
    apply_resizes(op, resizes, *stack);
    issue(op, stack);
    return;
  }
  const Issued issued = append_call(*entry, key);
  Folded folded;
  if (!key.knowable().empty()) [[unlikely]]
    folded = fold_on_host(op, *entry, *stack);
  if (!entry->replies) [[likely]] {
    (void)replace_arguments(op, *stack, entry->tensors, entry->returns, issued);
    if (folded.known || !folded.origins.empty()) [[unlikely]]
      std::move(folded).note(stack->back().toTensor());
    wait_if_debug(lock, issued);
    return;
  }
  replace_from_reply(op, *stack, *entry, issued, lock);
}

const OpInfo& op_info(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* infos =
      new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OpInfo>>();
  const std::lock_guard lock(mutex);
  std::unique_ptr<OpInfo>& info = (*infos)[&op.schema()];
  if (info == nullptr) info = std::make_unique<OpInfo>(op);
  return *info;
}

const OpInfo& op_info(const char* name, const char* overload) {
  return op_info(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

void IssueKernel::operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/,
                             torch::jit::Stack* stack) {
  const OpInfo* info = info_.load(std::memory_order_acquire);
  if (info == nullptr) [[unlikely]] {
    info = &op_info(op_);
    info_.store(info, std::memory_order_release);
  }
  issue(*info, stack);
}

void issue_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (is_of_pytorch(op)) {
    issue(op_info(op), stack);
  } else {
    run_on_host(op, stack);
  }
}

}  // namespace rgpu::backend
