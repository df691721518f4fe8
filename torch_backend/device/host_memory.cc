#include "torch_backend/device/host_memory.h"

#include <c10/core/CPUAllocator.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/block_cache.h"

namespace rgpu::backend {
namespace {

c10::Device cpu() { return c10::Device(c10::DeviceType::CPU); }

// Where pinned memory lies.
class PinnedRanges {
 public:
  static PinnedRanges& get() {
    static auto* const ranges = [] {
      // A thread may hold the lock when another forks; a child frees what it inherited.
      pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                     [] { get().mutex_.unlock(); });
      return new PinnedRanges();  // Leaked: tensors may outlive static destructors.
    }();
    return *ranges;
  }
  void add(const void* start, size_t size_bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[reinterpret_cast<uintptr_t>(start)] = std::max(size_bytes, size_t{1});
  }
  void remove(const void* start) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(reinterpret_cast<uintptr_t>(start));
  }
  bool contains(const void* address) const {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    const auto after = ranges_.upper_bound(wanted);
    if (after == ranges_.begin()) return false;
    const auto& [start, size_bytes] = *std::prev(after);
    return wanted - start < size_bytes;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> ranges_;  // Sizes in bytes.
};

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes < BlockCache::kBlockSizeBytesMin) {
      return c10::GetCPUAllocator()->allocate(size_bytes);
    }
    void* block = client_blocks().take(size_bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "rgpu: no host memory for a tensor of ",
                     size_bytes, " bytes");
    return {block, block, &BlockCache::give, cpu()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, size_t count) const override {
    std::memcpy(target, source, count);
  }
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    // An empty tensor has an address too, by which it is known as pinned.
    auto memory =
        std::make_unique<c10::DataPtr>(host_allocator()->allocate(std::max(size_bytes, size_t{1})));
    void* const start = memory->get();
    PinnedRanges::get().add(start, size_bytes);
    return {start, memory.release(), &release, cpu()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, size_t count) const override {
    std::memcpy(target, source, count);
  }

 private:
  static void release(void* context) {
    const std::unique_ptr<c10::DataPtr> memory(static_cast<c10::DataPtr*>(context));
    PinnedRanges::get().remove(memory->get());
  }
};

}  // namespace

c10::Allocator* host_allocator() {
  static HostAllocator allocator;
  return &allocator;
}

c10::Allocator* pinned_allocator() {
  static PinnedAllocator allocator;
  return &allocator;
}

bool is_pinned(const void* address) { return PinnedRanges::get().contains(address); }

}  // namespace rgpu::backend
