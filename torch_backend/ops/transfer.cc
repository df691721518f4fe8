#include "torch_backend/ops/transfer.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include "torch_backend/device/client.h"
#include "torch_backend/device/downloads.h"
#include "torch_backend/device/host_memory.h"
#include "torch_backend/device/host_values.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/stream.h"
#include "torch_backend/device/trace.h"
#include "torch_backend/ops/host_fold.h"
#include "torch_backend/ops/issue.h"

namespace rgpu::backend {
namespace {

bool on_device(const at::Tensor& tensor) { return tensor.device().type() == kDeviceType; }

// Whether the tensor's elements fill one unbroken range of its storage.
bool is_one_range(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

uint64_t offset_bytes(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.storage_offset()) * tensor.element_size();
}

// The same storage without the lazy conj and neg bits: the bytes as they lie there.
at::Tensor without_bits(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  at::Tensor plain = tensor.detach();
  plain._set_conj(false);
  plain._set_neg(false);
  return plain;
}

at::Tensor empty_host(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::detail::empty_strided_generic(sizes, strides, host_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
}

// The bytes of `target` are those of `host` from now on.
void note_upload(const at::Tensor& host, const at::Tensor& target) {
  c10::StorageImpl* storage = storage_of(target);
  HostValues& values = HostValues::get();
  if (!is_knowable(target) || !fills_storage(target)) {
    values.forget(storage);
    return;
  }
  c10::Storage bytes = host_storage(storage->nbytes());
  std::memcpy(bytes.mutable_data(), host.const_data_ptr(), storage->nbytes());
  values.put(storage, std::move(bytes));
}

// `host` has the bytes of `target` in the order in which they lie there. `keeps`: nobody changes
// them until they are sent, so that they need no copy.
void upload_range(const at::Tensor& host, bool keeps, const at::Tensor& target) {
  c10::StorageImpl* storage = storage_of(target);
  const Handle handle = checked_handle(storage);
  Client& client = Client::get();
  Payload payload;
  payload.bytes = {static_cast<const std::byte*>(host.const_data_ptr()),
                   static_cast<size_t>(host.numel()) * host.element_size()};
  if (keeps) payload.owner = std::make_shared<c10::Storage>(host.storage());
  const Status status =
      client.session().upload(current_stream(target.device().index()), handle, storage->nbytes(),
                              offset_bytes(target), std::move(payload), Client::hooks().observer());
  raise_if_error(status);
  if (name_of(storage).fresh) mark_announced(storage);
  note_upload(host, target);
  if (Client::debug()) client.synchronize_stream(current_stream(target.device().index()));
}

void copy_on_device(const at::Tensor& source, const at::Tensor& target) {
  static const OpInfo& op = op_info("aten::copy_", "");
  torch::jit::Stack stack{target, source, false};
  issue(op, &stack);
}

at::Tensor clone_contiguous(const at::Tensor& tensor) {
  static const OpInfo& op = op_info("aten::clone", "");
  torch::jit::Stack stack{tensor, static_cast<int64_t>(at::MemoryFormat::Contiguous)};
  issue(op, &stack);
  return stack.back().toTensor();
}

bool same_bytes(const at::Tensor& source, const at::Tensor& target) {
  return source.sizes() == target.sizes() && source.scalar_type() == target.scalar_type() &&
         source.strides() == target.strides() && source.is_conj() == target.is_conj() &&
         source.is_neg() == target.is_neg();
}

void upload(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (target.numel() == 0) return;
  const CallTracer traced("upload");
  const at::Tensor plain = without_bits(target);
  if (!is_one_range(plain)) {
    const at::Tensor staged = at::empty(target.sizes(), target.options());
    upload(source, staged, non_blocking);
    copy_on_device(staged, target);
    return;
  }
  if (same_bytes(source, target)) {
    upload_range(source, non_blocking && is_pinned(source.const_data_ptr()), plain);
    return;
  }
  const at::Tensor host = empty_host(target.sizes(), target.strides(), target.scalar_type());
  host._set_conj(target.is_conj());
  host._set_neg(target.is_neg());
  host.copy_(source);
  upload_range(host, /*keeps=*/true, plain);
}

// A kFetch of the dense `source` into `host`; the request whose reply says that it is there.
uint64_t fetch(const at::Tensor& source, const at::Tensor& host) {
  const CallTracer traced("download");
  Client& client = Client::get();
  const uint64_t size_bytes = source.numel() * source.element_size();
  auto owner = std::make_shared<c10::Storage>(host.storage());
  const std::span<std::byte> bytes(static_cast<std::byte*>(host.mutable_data_ptr()), size_bytes);
  const Handle handle = announce(storage_of(source));
  Result<uint64_t> request = client.session().new_request({bytes, std::move(owner)});
  if (!request) raise_if_error(request.error());
  const std::array<uint64_t, 3> immediates = {*request, offset_bytes(source), size_bytes};
  try {
    client.append(wire::Command::kFetch, current_stream(source.device().index()), {&handle, 1},
                  std::as_bytes(std::span(immediates)));
  } catch (...) {
    client.session().abandon_request(*request);
    throw;
  }
  return *request;
}

// Whether a read of `source` is to make its storage known: it is small, or asked for as a whole.
bool makes_known(const at::Tensor& source) {
  return source.numel() != 0 && is_knowable(source) &&
         (storage_of(source)->nbytes() <= kReadAheadBytesMax || fills_storage(source));
}

// A download of all of a storage, to be known.
class StorageFetch {
 public:
  explicit StorageFetch(c10::Storage storage) : storage_(std::move(storage)) {
    const auto size = static_cast<int64_t>(storage_.nbytes());
    at::Tensor whole = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(storage_), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        caffe2::TypeMeta::Make<uint8_t>());
    whole.unsafeGetTensorImpl()->set_sizes_contiguous({size});
    host_ = at::detail::empty_generic({size}, c10::GetAllocator(c10::DeviceType::CPU),
                                      c10::DispatchKeySet(c10::DispatchKey::CPU), at::kByte,
                                      std::nullopt);
    ticket_ = HostValues::get().begin(storage_.unsafeGetStorageImpl());
    request_ = fetch(whole, host_);
  }
  StorageFetch(const StorageFetch&) = delete;
  StorageFetch& operator=(const StorageFetch&) = delete;
  ~StorageFetch() {
    if (request_.has_value()) Client::get().session().abandon_request(*request_);
  }

  void wait() {
    const uint64_t request = *std::exchange(request_, std::nullopt);
    (void)Client::get().wait(request);
    keep();
  }
  // If it is here already.
  void take() {
    const auto reply = Client::get().session().poll(*request_);
    if (!reply.has_value()) return;
    request_.reset();
    if (reply->has_value() && !(*reply)->failed) keep();
  }

 private:
  void keep() {
    HostValues::get().finish(storage_.unsafeGetStorageImpl(), ticket_, host_.storage());
  }

  c10::Storage storage_;
  at::Tensor host_;
  uint64_t ticket_ = 0;
  std::optional<uint64_t> request_;  // Empty once it is over.
};

// One wait for all of the source's storage, so that reads of its other elements need none, and for
// what it was computed from, whose replies come before.
void fetch_known(const at::Tensor& source) {
  std::list<StorageFetch> origins;
  for (c10::Storage& origin : HostValues::get().origins(storage_of(source))) {
    if (!HostValues::get().find(origin.unsafeGetStorageImpl()))
      origins.emplace_back(std::move(origin));
  }
  StorageFetch(c10::Storage(source.storage())).wait();
  for (StorageFetch& origin : origins) origin.take();
}

// The source on the CPU, to be read only, if its value is known or its storage is worth knowing;
// else undefined.
at::Tensor known_value(const at::Tensor& source) {
  at::Tensor known = host_view(source);
  if (known.defined() || !makes_known(source)) return known;
  fetch_known(source);
  return host_view(source);  // Undefined if another thread wrote to it meanwhile.
}

// A CPU tensor with the source's sizes, strides and bits, which a download is on its way to.
struct Fetched {
  at::Tensor host;
  uint64_t request = 0;  // 0: nothing to wait for.
};
Fetched start_download(const at::Tensor& source) {
  if (const at::Tensor known = known_value(source); known.defined()) {
    return {is_one_range(known) ? known.clone() : known.clone(at::MemoryFormat::Contiguous)};
  }
  const at::Tensor dense = is_one_range(source) ? source : clone_contiguous(source);
  Fetched fetched{empty_host(dense.sizes(), dense.strides(), dense.scalar_type())};
  if (dense.numel() != 0) fetched.request = fetch(dense, fetched.host);
  fetched.host._set_conj(dense.is_conj());
  fetched.host._set_neg(dense.is_neg());
  return fetched;
}

at::Tensor download(const at::Tensor& source) {
  const Fetched fetched = start_download(source);
  if (fetched.request != 0) (void)Client::get().wait(fetched.request);
  return fetched.host;
}

// Straight into `target`, which has the source's form.
void download_into(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (source.numel() == 0) return;
  const bool waits = !(non_blocking && is_pinned(target.const_data_ptr()));
  if (const at::Tensor known = waits ? known_value(source) : host_view(source); known.defined()) {
    target.copy_(known);
    return;
  }
  Client& client = Client::get();
  if (!waits) {
    Downloads& downloads = Downloads::get();
    downloads.make_room();
    Session& session = client.session();
    downloads.add(session, fetch(source, target));
  } else {
    (void)client.wait(fetch(source, target));
  }
}

}  // namespace

at::Tensor copy_between(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (target.numel() == 0 && source.numel() == 0) return target;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (on_device(source) && on_device(target)) {
    copy_on_device(source, target);
    return target;
  }
  TORCH_CHECK(source.device().is_cpu() || target.device().is_cpu(), "rgpu: no copy between ",
              source.device(), " and ", target.device(), "; go through the CPU");
  if (on_device(target)) {
    upload(source.sizes() == target.sizes() ? source : source.expand(target.sizes()), target,
           non_blocking);
    return target;
  }
  if (same_bytes(source, target) && is_one_range(source)) {
    download_into(source, target, non_blocking);
  } else {
    target.copy_(download(source));
  }
  return target;
}

at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> layout, std::optional<at::Device> device,
                   std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  // Only what needs memory of ours: the rest, pinned targets too, PyTorch's own does.
  const bool preserves = format.value_or(at::MemoryFormat::Preserve) == at::MemoryFormat::Preserve;
  if (!device || !device->is_cpu() || non_blocking || pin_memory.value_or(false) || !preserves ||
      !is_one_range(self) || layout.value_or(at::kStrided) != at::kStrided) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  at::Tensor host = empty_host(self.sizes(), self.strides(), dtype.value_or(self.scalar_type()));
  return host.copy_(self);
}

std::vector<at::Tensor> download_together(at::TensorList sources) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<at::Tensor> hosts;
  std::vector<uint64_t> requests;
  for (const at::Tensor& source : sources) {
    Fetched fetched = start_download(source);
    hosts.push_back(std::move(fetched.host));
    if (fetched.request != 0) requests.push_back(fetched.request);
  }
  Client& client = Client::get();
  if (!requests.empty()) (void)client.wait(requests.back());
  // One stream answers in order, so the others are here already.
  for (size_t i = 0; i + 1 < requests.size(); ++i) {
    const std::optional<Result<wire::Reply>> reply = client.session().poll(requests[i]);
    reply ? raise_if_failed(*reply) : (void)client.wait(requests[i]);
  }
  return hosts;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, "a Tensor with ", tensor.numel(),
              " elements cannot be converted to Scalar");
  if (const at::Tensor known = known_value(tensor); known.defined())
    return at::_local_scalar_dense(known);
  return at::_local_scalar_dense(download(tensor).resolve_conj().resolve_neg());
}

}  // namespace rgpu::backend
