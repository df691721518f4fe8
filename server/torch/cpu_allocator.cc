#include "server/torch/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/block_cache.h"

namespace rgpu::server {
namespace {

size_t physical_size_bytes() {
  static const size_t size_bytes =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
  return size_bytes;
}

// An eighth of the machine at most: what is kept is missing elsewhere.
size_t kept_size_bytes_max() { return std::min(size_t{1} << 30, physical_size_bytes() / 8); }

BlockCache& blocks() {
  static auto* const cache = new BlockCache(kept_size_bytes_max());  // Leaked: outlives its blocks.
  return *cache;
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    if (size_bytes >= BlockCache::kBlockSizeBytesMin) {
      // Some systems promise more memory than there is, and kill who then uses it.
      void* block = size_bytes > physical_size_bytes() ? nullptr : blocks().take(size_bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr,
                       "DefaultCPUAllocator: can't allocate memory: you tried to allocate ",
                       size_bytes, " bytes.");
      return {block, block, &BlockCache::give, c10::Device(c10::DeviceType::CPU)};
    }
    try {
      return small_.allocate(size_bytes);
    } catch (const c10::Error&) {
      blocks().trim();
    }
    try {
      return small_.allocate(size_bytes);
    } catch (const c10::Error& error) {  // PyTorch's own is of no particular type.
      TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace());
    }
  }
  // For memory without a DataPtr (oneDNN's), which may be of either kind.
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t count) const override {
    std::memcpy(target, source, count);
  }

 private:
  static void release(void* pointer) {
    if (blocks().is_taken(pointer)) {
      BlockCache::give(pointer);
    } else {
      c10::GetDefaultCPUAllocator()->raw_deleter()(pointer);
    }
  }

  c10::Allocator& small_ = *c10::GetDefaultCPUAllocator();
};

}  // namespace

c10::Allocator* cpu_allocator() {
  static CpuAllocator allocator;
  return &allocator;
}

void use_cpu_allocator() {
  c10::SetCPUAllocator(cpu_allocator(), /*priority=*/1);
  // What a graph's call saved is freed at once, and malloc would give it back to the system, for
  // the next call to fault it in again.
  (void)mallopt(M_MMAP_THRESHOLD, static_cast<int>(2 * BlockCache::kBlockSizeBytesMin));
  (void)mallopt(M_TRIM_THRESHOLD, static_cast<int>(kept_size_bytes_max() / 4));
}

size_t kept_cpu_size_bytes() { return blocks().kept_size_bytes(); }

void empty_cpu_cache() {
  blocks().trim();
  (void)malloc_trim(0);
}

}  // namespace rgpu::server
