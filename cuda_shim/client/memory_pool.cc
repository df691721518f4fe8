#include "cuda_shim/client/memory_pool.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cuda_shim/client/errors.h"
#include "cuda_shim/client/streams.h"
#include "wire/stream.h"

namespace rgpu::cuda {
namespace {

constexpr size_t kPoolsMax = 1u << 12;
constexpr uint64_t kUnitBytes = 512;
constexpr uint64_t kWasteMax = 2;  // A kept block may be so many times too large.

std::mutex pools_mutex;  // Guards what follows; taken before a pool's own.
struct DevicePools {
  MemoryPool* standard = nullptr;
  MemoryPool* current = nullptr;
};
std::map<const Device*, DevicePools> of_devices;
std::vector<std::shared_ptr<PoolMemory>> all_memory;
// Programs without pools pay for none.
std::atomic<bool> any_pools{false};

std::vector<std::shared_ptr<PoolMemory>> live_pools() {
  if (!any_pools.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(pools_mutex);
  std::erase_if(all_memory, [](const auto& memory) { return memory->is_spent(); });
  return all_memory;
}

// pools_mutex is held.
CUresult make_pool(Device& device, uint64_t size_bytes_max, MemoryPool*& pool) {
  pool = memory_pools().create();
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->memory = std::make_shared<PoolMemory>(device, size_bytes_max);
  all_memory.push_back(pool->memory);
  any_pools.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

}  // namespace

// ---- PoolMemory ---------------------------------------------------------------------------------

void PoolMemory::note_highs() noexcept {
  used_high_bytes_ = std::max(used_high_bytes_, used_bytes_);
  reserved_high_bytes_ = std::max(reserved_high_bytes_, reserved_bytes());
}

CUresult PoolMemory::allocate(Client& client, uint32_t stream, uint64_t size_bytes,
                              uint64_t& address) {
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes > device_.info.memory_size_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t wanted = (size_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  const std::lock_guard lock(mutex_);
  for (auto at = kept_.lower_bound(wanted); at != kept_.end() && at->first <= wanted * kWasteMax;
       ++at) {
    const PoolBlock block = at->second;
    if (block.stream != stream && !is_done(block.stream, block.position)) continue;
    kept_.erase(at);
    kept_bytes_ -= block.size_bytes;
    used_.emplace(block.address, block.size_bytes);
    used_bytes_ += block.size_bytes;
    note_highs();
    address = block.address;
    return CUDA_SUCCESS;
  }
  if (size_bytes_max_ != 0 && reserved_bytes() + wanted > size_bytes_max_) release_all(client);
  if (size_bytes_max_ != 0 && used_bytes_ + wanted > size_bytes_max_) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  address = device_.addresses.allocate(wanted);
  if (address == 0) {
    release_all(client);
    address = device_.addresses.allocate(wanted);
  }
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  used_.emplace(address, wanted);
  used_bytes_ += wanted;
  note_highs();
  return client.append_allocate(wire::stream_of(device_.number, 0), address, wanted);
}

CUresult PoolMemory::give_back(Client& client, uint32_t stream, uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end()) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t size_bytes = found->second;
  used_.erase(found);
  used_bytes_ -= size_bytes;
  kept_bytes_ += size_bytes;
  const uint64_t position = client.session().appended(stream);
  kept_.emplace(size_bytes, PoolBlock{address, size_bytes, stream, position});
  if (closed_) release_all(client);
  return CUDA_SUCCESS;
}

CUresult PoolMemory::forget(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(address);
  if (found == used_.end()) {
    const bool is_kept = std::ranges::any_of(
        kept_, [&](const auto& entry) { return entry.second.address == address; });
    return is_kept ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
  }
  used_bytes_ -= found->second;
  used_.erase(found);
  return CUDA_SUCCESS;
}

void PoolMemory::free_block(Client& client, std::multimap<uint64_t, PoolBlock>::iterator block) {
  // On its way to the server before anybody can be given the address.
  client.session().free(block->second.address);
  (void)device_.addresses.free(block->second.address);
  kept_bytes_ -= block->second.size_bytes;
  kept_.erase(block);
}

// Only blocks that no stream uses any more: freeing another would make all streams wait for it.
void PoolMemory::release(Client& client, uint64_t kept_size_bytes) {
  for (auto at = kept_.end(); at != kept_.begin() && reserved_bytes() > kept_size_bytes;) {
    const auto block = std::prev(at);
    if (is_done(block->second.stream, block->second.position)) {
      free_block(client, block);
    } else {
      at = block;
    }
  }
}

void PoolMemory::release_all(Client& client) {
  while (!kept_.empty()) free_block(client, kept_.begin());
}

void PoolMemory::trim_to_threshold(Client& client) {
  const std::lock_guard lock(mutex_);
  release(client, release_threshold_bytes_);
}

void PoolMemory::trim(Client& client, uint64_t kept_size_bytes) {
  const std::lock_guard lock(mutex_);
  release(client, kept_size_bytes);
}

void PoolMemory::close(Client& client) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  release_all(client);
}

void PoolMemory::clear() {
  const std::lock_guard lock(mutex_);
  used_.clear();
  kept_.clear();
  used_bytes_ = kept_bytes_ = 0;
}

bool PoolMemory::holds(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto after = used_.upper_bound(address);
  if (after == used_.begin()) return false;
  const auto& [begin, size_bytes] = *std::prev(after);
  return address - begin < size_bytes;
}

bool PoolMemory::is_spent() const {
  const std::lock_guard lock(mutex_);
  return closed_ && used_.empty();
}

CUresult PoolMemory::attribute(CUmemPool_attribute attribute, void* value) const {
  const std::lock_guard lock(mutex_);
  const auto put = [&](uint64_t number) {
    std::memcpy(value, &number, sizeof number);
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      std::memcpy(value, &reuse_.at(static_cast<size_t>(attribute) - 1), sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return put(release_threshold_bytes_);
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return put(reserved_bytes());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return put(reserved_high_bytes_);
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return put(used_bytes_);
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return put(used_high_bytes_);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult PoolMemory::set_attribute(CUmemPool_attribute attribute, const void* value) {
  const std::lock_guard lock(mutex_);
  uint64_t number = 0;
  const bool is_reuse = attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                        attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
  std::memcpy(&number, value, is_reuse ? sizeof(int) : sizeof number);
  if (is_reuse) {
    reuse_.at(static_cast<size_t>(attribute) - 1) = number != 0 ? 1 : 0;
  } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
    release_threshold_bytes_ = number;
  } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && number == 0) {
    reserved_high_bytes_ = reserved_bytes();
  } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && number == 0) {
    used_high_bytes_ = used_bytes_;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUmemAccess_flags PoolMemory::access(const Device& device) const {
  if (&device == &device_) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const std::lock_guard lock(mutex_);
  for (const auto& [of, flags] : access_) {
    if (of == &device) return flags;
  }
  return CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

void PoolMemory::set_access(const Device& device, CUmemAccess_flags flags) {
  const std::lock_guard lock(mutex_);
  std::erase_if(access_, [&](const auto& entry) { return entry.first == &device; });
  access_.emplace_back(&device, flags);
}

// ---- Pools --------------------------------------------------------------------------------------

HandleTable<MemoryPool>& memory_pools() {
  static auto* const table = new HandleTable<MemoryPool>(kPoolsMax);
  return *table;
}

CUresult create_pool(Device& device, uint64_t size_bytes_max, MemoryPool*& pool) {
  const std::lock_guard lock(pools_mutex);
  return make_pool(device, size_bytes_max, pool);
}

CUresult default_pool(Device& device, MemoryPool*& pool) {
  const std::lock_guard lock(pools_mutex);
  MemoryPool*& standard = of_devices[&device].standard;
  if (standard == nullptr) {
    RGPU_TRY(make_pool(device, 0, standard));
    standard->is_default = true;
  }
  pool = standard;
  return CUDA_SUCCESS;
}

CUresult current_pool(Device& device, MemoryPool*& pool) {
  {
    const std::lock_guard lock(pools_mutex);
    pool = of_devices[&device].current;
  }
  return pool != nullptr ? CUDA_SUCCESS : default_pool(device, pool);
}

void set_current_pool(Device& device, MemoryPool& pool) {
  const std::lock_guard lock(pools_mutex);
  of_devices[&device].current = &pool;
}

CUresult destroy_pool(Client& client, MemoryPool& pool) {
  if (pool.is_default) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(pools_mutex);
    DevicePools& pools = of_devices[&pool.memory->device()];
    if (pools.current == &pool) pools.current = nullptr;
  }
  pool.memory->close(client);
  memory_pools().destroy(&pool);
  return CUDA_SUCCESS;
}

CUresult give_back(Client& client, uint32_t stream, uint64_t address) {
  for (const auto& memory : live_pools()) {
    if (memory->give_back(client, stream, address) == CUDA_SUCCESS) return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult forget_pool_memory(uint64_t address) {
  for (const auto& memory : live_pools()) {
    const CUresult code = memory->forget(address);
    if (code != CUDA_ERROR_NOT_FOUND) return code;
  }
  return CUDA_ERROR_NOT_FOUND;
}

MemoryPool* pool_of(uint64_t address) {
  MemoryPool* found = nullptr;
  memory_pools().for_each([&](MemoryPool& pool) {
    if (pool.memory->holds(address)) found = &pool;
  });
  return found;
}

void trim_pools(Client& client) {
  for (const auto& memory : live_pools()) memory->trim_to_threshold(client);
}

void clear_pools(Device& device) {
  for (const auto& memory : live_pools()) {
    if (&memory->device() == &device) memory->clear();
  }
}

}  // namespace rgpu::cuda
