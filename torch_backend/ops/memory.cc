#include "torch_backend/ops/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "runtime/block_cache.h"
#include "torch_backend/device/client.h"
#include "torch_backend/device/guard.h"
#include "torch_backend/device/stream.h"
#include "torch_backend/ops/issue.h"
#include "torch_backend/ops/shape_inference.h"

namespace rgpu::backend {
namespace {

// What the server keeps is known only when it is asked: the most that was ever seen, by device.
std::array<std::atomic<int64_t>, limits::kDevicesMax> reserved_peaks{};

const OpInfo& builtin(const char* name) {
  return *new OpInfo(name, {}, op_info("aten::scaled_dot_product_attention", "").handle);
}

// A record without arguments or results, on the device's current stream.
void issue_builtin(const OpInfo& op, c10::DeviceIndex device) {
  check_device(device);
  if (!Client::get().connected()) return;
  CallKey& key = thread_key();
  key.build(op, {}, context_bits());
  const int64_t where = device;
  key.append_words({&where, 1});
  const IssueLock lock;
  OpEntry* entry = op_memory().find(key.words(), key.hash());
  if (entry == nullptr) {
    auto made = std::make_unique<OpEntry>();
    made->op = &op;
    made->device = device;
    made->description.name = op.name;
    finish_entry(*made);
    entry = remember(std::move(made), key);
  }
  (void)append_call(*entry, key);
}

}  // namespace

MemoryInfo memory_info(c10::DeviceIndex device) {
  check_device(device);
  Client& client = Client::get();
  Result<uint64_t> request = client.session().new_request();
  if (!request) raise_if_error(request.error());
  std::array<std::byte, 12> immediates;
  const auto index = static_cast<uint32_t>(device);
  std::memcpy(immediates.data(), &*request, 8);
  std::memcpy(immediates.data() + 8, &index, 4);
  client.append(wire::Command::kMemory, current_stream(device), {}, immediates);
  const wire::Reply reply = client.wait(*request);
  constexpr size_t kValues = 12;
  TORCH_CHECK(reply.values.size() >= kValues, "rgpu: the server's answer about memory has ",
              reply.values.size(), " of ", kValues, " values");
  const auto value = [&](size_t i) { return reply.values[i].integer; };
  MemoryInfo info;
  info.bytes = {value(0), value(1), value(4), value(5)};
  info.storages = {value(6), value(7), value(8), value(9)};
  info.free_bytes = value(2);
  info.total_bytes = value(3);
  info.out_of_memory_count = value(11);
  const int64_t reserved = info.bytes.current + value(10);
  std::atomic<int64_t>& peak = reserved_peaks[static_cast<size_t>(device)];
  peak = std::max({peak.load(), reserved, info.bytes.peak});
  info.reserved_bytes = {reserved, peak.load(), info.bytes.added, info.bytes.removed};
  return info;
}

void empty_cache() {
  static const OpInfo& op = builtin("rgpu::empty_cache");
  client_blocks().trim();
  issue_builtin(op, current_device());
}

void reset_peak_memory(c10::DeviceIndex device) {
  static const OpInfo& op = builtin("rgpu::reset_peak_memory");
  issue_builtin(op, device);
  reserved_peaks[static_cast<size_t>(device)] = 0;
}

void reset_total_memory(c10::DeviceIndex device) {
  static const OpInfo& op = builtin("rgpu::reset_total_memory");
  issue_builtin(op, device);
}

}  // namespace rgpu::backend
