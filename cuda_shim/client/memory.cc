#include "cuda_shim/client/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "cuda_shim/client/deliveries.h"
#include "cuda_shim/client/host_order.h"
#include "cuda_shim/client/memory_pool.h"

namespace rgpu::cuda {
namespace {

using wire::Command;
using wire::cuda::Extent;

// Of one fetch; more goes as several.
constexpr uint64_t kFetchSizeBytesMax = uint64_t{256} << 20;

std::mutex host_mutex;
std::map<uintptr_t, HostBlock> host_blocks;  // By address. Guarded by host_mutex.

size_t page_up(size_t size_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (size_bytes + page - 1) / page * page;
}

// host_mutex is held.
std::map<uintptr_t, HostBlock>::iterator find_block(uintptr_t address) {
  auto at = host_blocks.upper_bound(address);
  if (at == host_blocks.begin()) return host_blocks.end();
  --at;
  return address - at->first < std::max<size_t>(at->second.size_bytes, 1) ? at : host_blocks.end();
}

CUresult add_block(const HostBlock& block) {
  const auto address = reinterpret_cast<uintptr_t>(block.address);
  const std::lock_guard lock(host_mutex);
  const auto next = host_blocks.lower_bound(address);
  if ((next != host_blocks.end() && next->first < address + block.size_bytes) ||
      find_block(address) != host_blocks.end()) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  host_blocks[address] = block;
  return CUDA_SUCCESS;
}

uint64_t size_of(const Extent& extent) { return extent.width_bytes * extent.height * extent.depth; }

// Whether a side's bytes follow one another without gaps.
bool is_packed(const Side& side, const Extent& extent) {
  return (extent.height == 1 || side.row_pitch_bytes == extent.width_bytes) &&
         (extent.depth == 1 || side.slice_pitch_bytes == extent.width_bytes * extent.height);
}

uint64_t span_of(const Side& side, const Extent& extent) {
  return (extent.depth - 1) * side.slice_pitch_bytes + (extent.height - 1) * side.row_pitch_bytes +
         extent.width_bytes;
}

wire::cuda::Box box_of(const Side& side) {
  return {side.address, side.row_pitch_bytes, side.slice_pitch_bytes};
}

// Calls `row(address in the side, offset if packed)`.
template <typename Row>
void for_each_row(const Side& side, const Extent& extent, Row row) {
  uint64_t packed = 0;
  for (uint64_t z = 0; z < extent.depth; ++z) {
    for (uint64_t y = 0; y < extent.height; ++y) {
      row(side.host() + z * side.slice_pitch_bytes + y * side.row_pitch_bytes, packed);
      packed += extent.width_bytes;
    }
  }
}

// What must have happened before bytes of the host's are read or written here: deliveries to them,
// and host functions, which may do anything.
CUresult settle_host(Client& client, Stream& stream, const Side& side, const Extent& extent) {
  if (host_functions_pending()) {
    if (const CUresult code = synchronize(stream); code != CUDA_SUCCESS) return code;
  }
  return await_deliveries(client, side.host(), span_of(side, extent));
}

CUresult upload(Client& client, Stream& stream, const Side& target, const Side& source,
                const Extent& extent) {
  if (const CUresult code = settle_host(client, stream, source, extent); code != CUDA_SUCCESS) {
    return code;
  }
  const uint64_t size_bytes = size_of(extent);
  std::vector<std::byte> packed;
  std::span<const std::byte> bytes(source.host(), size_bytes);
  if (!is_packed(source, extent)) {
    packed.resize(size_bytes);
    for_each_row(source, extent, [&](const std::byte* row, uint64_t offset) {
      std::memcpy(packed.data() + offset, row, extent.width_bytes);
    });
    bytes = packed;
  }
  if (is_packed(target, extent)) {
    return client.upload(stream.number, target.address, size_bytes, {bytes, nullptr});
  }
  wire::cuda::Scatter scatter;
  scatter.target = box_of(target);
  scatter.extent = extent;
  if (const CUresult code = client.upload_buffer(stream.number, bytes, scatter.buffer);
      code != CUDA_SUCCESS) {
    return code;
  }
  return client.append(stream.number, Call::kScatter, scatter);
}

// Contiguous on both sides. `request` is left open.
CUresult issue_fetch(Client& client, Stream& stream, uint64_t address, std::span<std::byte> target,
                     uint64_t& request) {
  if (const CUresult code = client.open_request(request, {target, nullptr}); code != CUDA_SUCCESS) {
    return code;
  }
  const CUresult code = client.append_fetch(stream.number, address, request, target.size());
  if (code != CUDA_SUCCESS) client.abandon(request);
  return code;
}

CUresult download_packed(Client& client, Stream& stream, const Side& target, uint64_t address,
                         uint64_t size_bytes, bool blocking) {
  for (uint64_t at = 0; at < size_bytes;) {
    const uint64_t size = std::min(size_bytes - at, kFetchSizeBytesMax);
    uint64_t request = 0;
    CUresult code = issue_fetch(client, stream, address + at, {target.host() + at, size}, request);
    if (code != CUDA_SUCCESS) return code;
    code =
        blocking ? client.wait(request) : add_delivery(client, request, target.host() + at, size);
    if (code != CUDA_SUCCESS) return code;
    at += size;
  }
  return blocking ? settle_deliveries(client) : CUDA_SUCCESS;
}

CUresult download(Client& client, Stream& stream, const Side& target, const Side& source,
                  const Extent& extent, bool blocking) {
  const uint64_t size_bytes = size_of(extent);
  if (is_packed(source, extent) && is_packed(target, extent)) {
    blocking = blocking || !is_pinned(target.host(), size_bytes);
    if (!blocking) {
      // Another one on its way to the same bytes must not arrive after this one.
      const CUresult code = await_deliveries(client, target.host(), size_bytes);
      if (code != CUDA_SUCCESS) return code;
    }
    return download_packed(client, stream, target, source.address, size_bytes, blocking);
  }
  std::vector<std::byte> packed(size_bytes);
  wire::cuda::Gather gather;
  gather.source = box_of(source);
  gather.extent = extent;
  CUresult code = client.open_request(gather.request, {packed, nullptr});
  if (code != CUDA_SUCCESS) return code;
  code = client.append(stream.number, Call::kGather, gather);
  if (code != CUDA_SUCCESS) {
    client.abandon(gather.request);
    return code;
  }
  code = client.wait(gather.request);
  if (code != CUDA_SUCCESS) return code;
  for_each_row(target, extent, [&](std::byte* row, uint64_t offset) {
    std::memcpy(row, packed.data() + offset, extent.width_bytes);
  });
  return settle_deliveries(client);
}

CUresult copy_on_host(Stream& stream, const Side& target, const Side& source,
                      const Extent& extent) {
  if (const CUresult code = synchronize(stream); code != CUDA_SUCCESS) return code;
  for (uint64_t z = 0; z < extent.depth; ++z) {
    for (uint64_t y = 0; y < extent.height; ++y) {
      std::memmove(target.host() + z * target.slice_pitch_bytes + y * target.row_pitch_bytes,
                   source.host() + z * source.slice_pitch_bytes + y * source.row_pitch_bytes,
                   extent.width_bytes);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

// ---- Device memory ------------------------------------------------------------------------------

CUresult allocate(const Calling& calling, size_t size_bytes, uint64_t& address) {
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Context& context = *calling.context;
  address = calling.device->addresses.allocate(size_bytes, context.primary ? 0 : context.id);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  return calling.client->append_allocate(calling.context->legacy.number, address, size_bytes);
}

CUresult free_device(Client& client, uint64_t address) {
  Device* const device = client.device_of(address);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Allocation allocation = device->addresses.find(address);
  if (allocation.address != address || allocation.mapped || address >= device->addresses.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult code = forget_pool_memory(address); code == CUDA_ERROR_INVALID_VALUE) {
    return code;
  }
  // First on its way to the server: whoever is given the address next comes later.
  client.session().free(address);
  return device->addresses.free(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool is_allocated(const Client& client, uint64_t address, uint64_t size_bytes) {
  const Device* const device = client.device_of(address);
  return device != nullptr && device->addresses.holds(address, size_bytes);
}

// ---- Host memory --------------------------------------------------------------------------------

CUresult allocate_host(const Calling& calling, size_t size_bytes, unsigned flags, void*& address) {
  if (size_bytes == 0) {
    address = nullptr;
    return CUDA_SUCCESS;
  }
  void* const mapped = mmap(nullptr, page_up(size_bytes), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  address = mapped;
  return add_block({mapped, size_bytes, flags, false, calling.context});
}

CUresult free_host(void* address) {
  size_t size_bytes = 0;
  {
    const std::lock_guard lock(host_mutex);
    const auto found = host_blocks.find(reinterpret_cast<uintptr_t>(address));
    if (found == host_blocks.end() || found->second.registered) return CUDA_ERROR_INVALID_VALUE;
    size_bytes = found->second.size_bytes;
    host_blocks.erase(found);
  }
  // As CUDA, which waits for all that may use it.
  Client* const client = connected_client();
  const CUresult code =
      client == nullptr ? CUDA_SUCCESS : await_deliveries(*client, address, size_bytes);
  munmap(address, page_up(size_bytes));
  return code;
}

CUresult register_host(const Calling& calling, void* address, size_t size_bytes, unsigned flags) {
  if (address == nullptr || size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return add_block({address, size_bytes, flags, true, calling.context});
}

CUresult unregister_host(void* address) {
  size_t size_bytes = 0;
  {
    const std::lock_guard lock(host_mutex);
    const auto found = host_blocks.find(reinterpret_cast<uintptr_t>(address));
    if (found == host_blocks.end() || !found->second.registered) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    size_bytes = found->second.size_bytes;
    host_blocks.erase(found);
  }
  Client* const client = connected_client();
  return client == nullptr ? CUDA_SUCCESS : await_deliveries(*client, address, size_bytes);
}

std::optional<HostBlock> find_host(const void* address) {
  const std::lock_guard lock(host_mutex);
  const auto found = find_block(reinterpret_cast<uintptr_t>(address));
  if (found == host_blocks.end()) return std::nullopt;
  return found->second;
}

bool is_pinned(const void* address, size_t size_bytes) {
  const std::optional<HostBlock> block = find_host(address);
  if (!block) return false;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(address) -
                                          static_cast<const std::byte*>(block->address));
  return size_bytes <= block->size_bytes - offset;
}

// ---- Moving bytes -------------------------------------------------------------------------------

Side side_of(const Client& client, uint64_t address) {
  return {client.is_device_address(address), address, 0, 0};
}

CUresult copy(Client& client, Stream& stream, const Side& target, const Side& source,
              const Extent& extent, bool blocking) {
  if (size_of(extent) == 0) return CUDA_SUCCESS;
  for (const Side* const side : {&target, &source}) {
    if (side->address == 0 ||
        (side->on_device && !is_allocated(client, side->address, span_of(*side, extent)))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  CUresult code = CUDA_SUCCESS;
  if (!target.on_device && !source.on_device) {
    return copy_on_host(stream, target, source, extent);
  }
  code = follow_blocking_copies(client, stream);
  if (code != CUDA_SUCCESS) return code;
  if (!source.on_device) {
    code = upload(client, stream, target, source, extent);
    if (blocking && code == CUDA_SUCCESS) code = note_blocking_copy(client, stream);
  } else if (!target.on_device) {
    return download(client, stream, target, source, extent, blocking);
  } else {
    code = client.append(stream.number, Call::kCopy,
                         wire::cuda::Copy{box_of(source), box_of(target), extent});
  }
  return code == CUDA_SUCCESS && client.launch_blocking() ? synchronize(stream) : code;
}

CUresult set_memory(Client& client, Stream& stream, const Side& target, const Extent& extent,
                    uint32_t value, uint32_t value_size_bytes) {
  if (size_of(extent) == 0) return CUDA_SUCCESS;
  if (!target.on_device || target.address % value_size_bytes != 0 ||
      !is_allocated(client, target.address, span_of(target, extent))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult code = follow_blocking_copies(client, stream); code != CUDA_SUCCESS) {
    return code;
  }
  const CUresult code =
      client.append(stream.number, Call::kMemset,
                    wire::cuda::Memset{box_of(target), extent, value, value_size_bytes});
  return code == CUDA_SUCCESS && client.launch_blocking() ? synchronize(stream) : code;
}

}  // namespace rgpu::cuda
