#include "torch_backend/device/allocator.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "torch_backend/device/client.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/storage.h"
#include "torch_backend/ops/memory.h"

namespace rgpu::backend {
namespace {

using c10::CachingDeviceAllocator::DeviceStats;

c10::CachingAllocator::Stat stat_of(const MemoryStat& figures) {
  c10::CachingAllocator::Stat stat;
  stat.current = figures.current;
  stat.peak = figures.peak;
  stat.allocated = figures.added;
  stat.freed = figures.removed;
  return stat;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t /*size_bytes*/) override {
    Client& client = Client::get();
    const wire::Handle handle = client.session().new_handles(1);
    return make_data_ptr({handle, client.generation(), true, false}, current_device());
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*target*/, const void* /*source*/, size_t /*count*/) const override {
    TORCH_CHECK(false, "rgpu: device memory cannot be copied through host pointers");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override { empty_cache(); }
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}

  // Storages are what PyTorch's allocators call blocks; each is a segment of its own here.
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryInfo memory = memory_info(or_current(device));
    DeviceStats stats;
    const auto bytes = stat_of(memory.bytes);
    const auto storages = stat_of(memory.storages);
    stats.allocated_bytes[0] = stats.active_bytes[0] = stats.requested_bytes[0] = bytes;
    stats.allocation[0] = stats.active[0] = stats.segment[0] = storages;
    stats.reserved_bytes[0] = stat_of(memory.reserved_bytes);
    stats.num_ooms = memory.out_of_memory_count;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    reset_total_memory(or_current(device));
  }
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak_memory(or_current(device)); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const MemoryInfo memory = memory_info(or_current(device));
    return {static_cast<size_t>(memory.free_bytes), static_cast<size_t>(memory.total_bytes)};
  }
};

}  // namespace

c10::Allocator* device_allocator() {
  static DeviceAllocator allocator;
  return &allocator;
}

}  // namespace rgpu::backend
