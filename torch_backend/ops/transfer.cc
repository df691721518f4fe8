#include "torch_backend/ops/transfer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "torch_backend/device/client.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/device/stream.h"
#include "torch_backend/ops/issue.h"

namespace rgpu::backend {
namespace {

bool on_device(const at::Tensor& tensor) { return tensor.device().type() == kDeviceType; }

// Whether the tensor's elements fill one unbroken range of its storage.
bool is_one_range(const at::Tensor& tensor) { return tensor.is_non_overlapping_and_dense(); }

uint64_t offset_bytes(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.storage_offset()) * tensor.element_size();
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The same storage without the lazy conj and neg bits: the bytes as they lie there.
at::Tensor without_bits(const at::Tensor& tensor) {
  if (!tensor.is_conj() && !tensor.is_neg()) return tensor;
  at::Tensor plain = tensor.detach();
  plain._set_conj(false);
  plain._set_neg(false);
  return plain;
}

// Large fresh memory costs more in page faults than in copying; huge pages make them few.
void advise_huge_pages([[maybe_unused]] void* start, [[maybe_unused]] size_t size_bytes) {
#ifdef __linux__
  constexpr size_t kHugePageSizeBytes = size_t{2} << 20;
  if (size_bytes < 2 * kHugePageSizeBytes) return;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t first =
      (address + kHugePageSizeBytes - 1) / kHugePageSizeBytes * kHugePageSizeBytes;
  const uintptr_t last = (address + size_bytes) / kHugePageSizeBytes * kHugePageSizeBytes;
  // A hint: where it is refused, pages are small.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

Payload snapshot(const at::Tensor& host) {
  const size_t size_bytes = host.numel() * host.element_size();
  std::shared_ptr<void> copy(std::malloc(size_bytes), &std::free);
  TORCH_CHECK_WITH(OutOfMemoryError, copy != nullptr, "rgpu: no host memory for an upload of ",
                   size_bytes, " bytes");
  advise_huge_pages(copy.get(), size_bytes);
  std::memcpy(copy.get(), host.const_data_ptr(), size_bytes);
  const auto* bytes = static_cast<const std::byte*>(copy.get());
  return {{bytes, size_bytes}, std::move(copy)};
}

// `host` has the bytes of `target` in the order in which they lie there.
void upload_range(const at::Tensor& host, const at::Tensor& target) {
  c10::StorageImpl* storage = storage_of(target);
  const Handle handle = checked_handle(storage);
  Client& client = Client::get();
  const Status status =
      client.session().upload(current_stream(), handle, storage->nbytes(), offset_bytes(target),
                              snapshot(host), Client::hooks().observer());
  raise_if_error(status);
  if (name_of(storage).fresh) mark_announced(storage);
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

void upload(const at::Tensor& source, const at::Tensor& target) {
  if (target.numel() == 0) return;
  const at::Tensor plain = without_bits(target);
  if (is_one_range(plain)) {
    at::Tensor host = source.scalar_type() == plain.scalar_type() &&
                              source.sizes() == plain.sizes() &&
                              source.strides() == plain.strides() && !source.is_conj() &&
                              !source.is_neg() && !target.is_conj() && !target.is_neg()
                          ? source
                          : at::Tensor();
    if (!host.defined()) {
      host = at::empty_strided(target.sizes(), target.strides(),
                               source.options().dtype(target.scalar_type()));
      host._set_conj(target.is_conj());
      host._set_neg(target.is_neg());
      host.copy_(source);
      host._set_conj(false);
      host._set_neg(false);
    }
    upload_range(host, plain);
    return;
  }
  const at::Tensor staged = at::empty(target.sizes(), target.options());
  upload(source, staged);
  copy_on_device(staged, target);
}

// A CPU tensor with the source's sizes, strides and bits, filled by one wait. Its bytes go straight
// into `into` when that is given.
at::Tensor download(const at::Tensor& source, const at::Tensor& into = {}) {
  const at::Tensor dense = is_one_range(source) ? source : clone_contiguous(source);
  const at::Tensor host = into.defined() ? into
                                         : at::empty_strided(dense.sizes(), dense.strides(),
                                                             dense.options().device(at::kCPU));
  if (dense.numel() != 0) {
    Client& client = Client::get();
    const uint64_t size_bytes = dense.numel() * dense.element_size();
    if (!into.defined()) advise_huge_pages(host.mutable_data_ptr(), size_bytes);
    auto owner = std::make_shared<at::Tensor>(host);
    const std::span<std::byte> bytes(static_cast<std::byte*>(host.mutable_data_ptr()), size_bytes);
    const Handle handle = announce(storage_of(dense));
    Result<uint64_t> request = client.session().new_request({bytes, std::move(owner)});
    if (!request) raise_if_error(request.error());
    const std::array<uint64_t, 3> immediates = {*request, offset_bytes(dense), size_bytes};
    client.append(wire::Command::kFetch, current_stream(), {&handle, 1},
                  std::as_bytes(std::span(immediates)));
    (void)client.wait(*request);
  }
  if (!into.defined()) {
    host._set_conj(dense.is_conj());
    host._set_neg(dense.is_neg());
  }
  return host;
}

}  // namespace

at::Tensor copy_between(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  if (target.numel() == 0 && source.numel() == 0) return target;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (on_device(source) && on_device(target)) {
    copy_on_device(source, target);
    return target;
  }
  TORCH_CHECK(source.device().is_cpu() || target.device().is_cpu(), "rgpu: no copy between ",
              source.device(), " and ", target.device(), "; go through the CPU");
  if (on_device(target)) {
    upload(source.sizes() == target.sizes() ? source : source.expand(target.sizes()), target);
    return target;
  }
  const bool straight = source.sizes() == target.sizes() &&
                        source.scalar_type() == target.scalar_type() &&
                        source.strides() == target.strides() && is_one_range(source) &&
                        source.is_conj() == target.is_conj() && source.is_neg() == target.is_neg();
  if (straight) {
    download(source, target);
  } else {
    target.copy_(download(source));
  }
  return target;
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, "a Tensor with ", tensor.numel(),
              " elements cannot be converted to Scalar");
  return at::_local_scalar_dense(download(tensor).resolve_conj().resolve_neg());
}

}  // namespace rgpu::backend
