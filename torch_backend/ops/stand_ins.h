// StandIns: a call's arguments as tensors of another device, to ask PyTorch about the call: same
// sizes, strides, offsets, dtypes and bits; tensors that share a storage share one here as well.
//
// Threading: one thread; a short-lived value.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <unordered_map>

namespace rgpu::backend {

class StandIns {
 public:
  // `type`: kMeta (no memory), or kCPU (zeros).
  explicit StandIns(c10::DeviceType type) : type_(type) {}
  [[nodiscard]] c10::IValue convert(const c10::IValue& value);

 private:
  [[nodiscard]] at::Tensor convert(const at::Tensor& tensor);
  [[nodiscard]] c10::Storage storage_of(const c10::Storage& original);

  c10::DeviceType type_;
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;
};

}  // namespace rgpu::backend
