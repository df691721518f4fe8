#include "server/torch/slot.h"

#include <utility>

namespace rgpu::server {
namespace {

constexpr size_t kErrorsMax = 1024;  // Later ones are still told by what depends on them.

}  // namespace

void ErrorLog::add(PoisonPtr poison) {
  const std::lock_guard lock(mutex_);
  if (errors_.size() == kErrorsMax) forget_reported();
  if (errors_.size() < kErrorsMax) errors_.push_back(std::move(poison));
  any_ = true;
}

void ErrorLog::forget_reported() {
  std::erase_if(errors_, [](const PoisonPtr& poison) { return poison->reported.load(); });
  any_ = !errors_.empty();
}

PoisonPtr ErrorLog::first_unreported() {
  if (!any_) return nullptr;
  const std::lock_guard lock(mutex_);
  forget_reported();
  return errors_.empty() ? nullptr : errors_.front();
}

PoisonPtr ErrorLog::take_lost() {
  if (!any_) return nullptr;
  const std::lock_guard lock(mutex_);
  forget_reported();
  // Nobody can get a reference but through this log, so that one that is alone stays alone.
  PoisonPtr first;
  for (const PoisonPtr& poison : errors_) {
    if (poison.use_count() != 1) continue;
    if (!first) first = poison;
    if (poison->error.location == first->error.location) poison->reported = true;
  }
  return first;
}

void ErrorLog::tell(Poison& poison) {
  constexpr auto kOutOfMemory = wire::ErrorType::kOutOfMemoryError;
  poison.reported = true;
  if (poison.error.type != kOutOfMemory || !any_) return;
  const std::lock_guard lock(mutex_);
  for (const PoisonPtr& other : errors_) {
    if (other->error.type == kOutOfMemory) other->reported = true;
  }
}

void Slot::set_storage(c10::Storage storage) {
  forget_tensor();
  storage_ = std::move(storage);
  account(storage_ ? storage_.nbytes() : 0);
}

void Slot::set_opaque(at::Tensor value) {
  opaque = true;
  opaque_tensor = std::move(value);
  if (opaque_tensor.defined() && opaque_tensor.has_storage()) {
    account(opaque_tensor.storage().nbytes());
  }
}

size_t Slot::own_references() const noexcept {
  const bool tensor_has_it =
      cached_.defined() && cached_.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
                               storage_.unsafeGetStorageImpl();
  return tensor_has_it ? 2 : 1;
}

void Slot::set_tensor(at::Tensor tensor, const Geometry& geometry) {
  set_storage(tensor.storage());
  cached_ = std::move(tensor);
  cached_geometry_ = geometry.id;
  cached_offset_ = 0;
}

const at::Tensor& Slot::tensor(const Geometry& geometry, int64_t offset) {
  if (cached_geometry_ == geometry.id && cached_offset_ == offset) return cached_;
  cached_ = geometry.make_tensor(storage_, offset);
  cached_geometry_ = geometry.id;
  cached_offset_ = offset;
  return cached_;
}

void Slot::recheck_tensor(const Geometry& geometry) {
  if (cached_geometry_ != geometry.id) return;
  if (storage_) account(storage_.nbytes());
  const c10::TensorImpl& impl = *cached_.unsafeGetTensorImpl();
  if (impl.unsafe_storage().unsafeGetStorageImpl() != storage_.unsafeGetStorageImpl() ||
      impl.storage_offset() != cached_offset_ || impl.sizes() != geometry.sizes ||
      impl.strides() != geometry.strides) {
    forget_tensor();
  }
}

}  // namespace rgpu::server
