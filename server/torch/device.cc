#include "server/torch/device.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "server/torch/cpu_allocator.h"

namespace rgpu::server {
namespace {

// `size_bytes` bytes of a storage as a tensor, so that copy_() moves them whatever the device.
at::Tensor byte_tensor(const c10::Storage& storage, uint64_t offset_bytes, uint64_t size_bytes) {
  const c10::DispatchKey key =
      c10::computeDispatchKey(c10::ScalarType::Byte, c10::Layout::Strided, storage.device());
  c10::Storage shared = storage;
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(shared), c10::DispatchKeySet(key),
                                               c10::scalarTypeToTypeMeta(c10::ScalarType::Byte));
  const std::array<int64_t, 1> sizes = {static_cast<int64_t>(size_bytes)};
  const std::array<int64_t, 1> strides = {1};
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides,
                                                      static_cast<int64_t>(offset_bytes));
  return tensor;
}

at::Tensor host_tensor(const std::byte* start, uint64_t size_bytes) {
  return at::from_blob(const_cast<std::byte*>(start), {static_cast<int64_t>(size_bytes)},
                       at::TensorOptions(c10::ScalarType::Byte));
}

uint64_t available_host_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes >> unit) {
    if (name == "MemAvailable:") return kibibytes << 10;
  }
  return 0;
}

}  // namespace

MemoryFigures memory_figures(c10::Device device) {
  if (device.is_cpu()) {
    const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    const uint64_t kept_bytes = kept_cpu_size_bytes();
    return {available_host_bytes() + kept_bytes,
            pages * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)), kept_bytes};
  }
  try {
    auto* allocator = static_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
    const auto [free_bytes, total_bytes] = allocator->getMemoryInfo(device.index());
    const auto stats = allocator->getDeviceStats(device.index());
    const int64_t kept_bytes = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
    return {free_bytes, total_bytes, static_cast<uint64_t>(std::max<int64_t>(0, kept_bytes))};
  } catch (const c10::Error&) {
    return {};  // Not every accelerator's allocator can say.
  }
}

std::vector<wire::DeviceInfo> device_infos(c10::DeviceType type, uint32_t count,
                                           uint64_t memory_limit_bytes) {
  std::vector<wire::DeviceInfo> infos;
  for (uint32_t index = 0; index < count; ++index) {
    const c10::Device device(type, type == c10::DeviceType::CPU
                                       ? c10::DeviceIndex{-1}
                                       : static_cast<c10::DeviceIndex>(index));
    const uint64_t total_bytes = memory_figures(device).total_bytes;
    const bool limited = memory_limit_bytes != 0 && memory_limit_bytes < total_bytes;
    infos.push_back({device.str(), limited ? memory_limit_bytes : total_bytes});
  }
  return infos;
}

void empty_cache(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) {
    empty_cpu_cache();
  } else {
    static_cast<c10::DeviceAllocator*>(c10::GetAllocator(type))->emptyCache();
  }
}

Segment make_segment(uint64_t size_bytes) {
  auto data = std::make_shared<c10::DataPtr>(cpu_allocator()->allocate(size_bytes));
  auto* const start = static_cast<std::byte*>(data->get());
  return {{start, size_bytes}, std::move(data)};
}

c10::Storage adopt_segment(Segment segment, c10::Allocator* allocator) {
  auto* const data = static_cast<c10::DataPtr*>(segment.owner.get());
  return {c10::Storage::use_byte_size_t(), c10::SymInt(static_cast<int64_t>(segment.bytes.size())),
          std::move(*data), allocator,
          /*resizable=*/true};
}

void copy_bytes(const c10::Storage& target, uint64_t target_offset_bytes,
                const c10::Storage& source, uint64_t source_offset_bytes, uint64_t size_bytes) {
  const at::AutoDispatchBelowADInplaceOrView below;
  byte_tensor(target, target_offset_bytes, size_bytes)
      .copy_(byte_tensor(source, source_offset_bytes, size_bytes));
}

void write_bytes(const c10::Storage& target, uint64_t offset_bytes,
                 std::span<const std::byte> source) {
  if (target.device().is_cpu()) {
    std::memcpy(static_cast<std::byte*>(target.mutable_data()) + offset_bytes, source.data(),
                source.size());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  byte_tensor(target, offset_bytes, source.size()).copy_(host_tensor(source.data(), source.size()));
}

void read_bytes(const c10::Storage& source, uint64_t offset_bytes, std::span<std::byte> target) {
  if (source.device().is_cpu()) {
    std::memcpy(target.data(), static_cast<const std::byte*>(source.data()) + offset_bytes,
                target.size());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  host_tensor(target.data(), target.size()).copy_(byte_tensor(source, offset_bytes, target.size()));
}

void keep_until_stream_is_done(const c10::Storage& storage) {
  const c10::Device device = storage.device();
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.recordDataPtrOnStream(storage.data_ptr(), guard.getStream(device));
}

void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.index());
}

void synchronize_current_stream(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

}  // namespace rgpu::server
