#include "cuda_shim/client/deliveries.h"

#include <list>

namespace rgpu::cuda {
namespace {

constexpr size_t kDeliveriesMax = 512;  // The session has 1024 requests in all.

struct Delivery {
  uint64_t request;
  const std::byte* target;
  uint64_t size_bytes;
};

std::mutex mutex;
std::list<Delivery> deliveries;  // Guarded by mutex.
std::atomic<size_t> count{0};

// The first for which `wanted` holds is taken off the list and waited for. False: there is none.
template <typename Wanted>
bool await_one(Client& client, Wanted wanted, CUresult& code) {
  Delivery found{};
  {
    const std::lock_guard lock(mutex);
    auto at = deliveries.begin();
    while (at != deliveries.end() && !wanted(*at)) ++at;
    if (at == deliveries.end()) return false;
    found = *at;
    deliveries.erase(at);
    count = deliveries.size();
  }
  code = client.wait(found.request);
  return true;
}

}  // namespace

bool deliveries_pending() noexcept { return count.load(std::memory_order_acquire) != 0; }

CUresult add_delivery(Client& client, uint64_t request, const void* target, uint64_t size_bytes) {
  bool full = false;
  {
    const std::lock_guard lock(mutex);
    deliveries.push_back({request, static_cast<const std::byte*>(target), size_bytes});
    count = deliveries.size();
    full = deliveries.size() >= kDeliveriesMax;
  }
  if (!full) return CUDA_SUCCESS;
  if (const CUresult code = settle_deliveries(client); code != CUDA_SUCCESS) return code;
  if (count < kDeliveriesMax / 2) return CUDA_SUCCESS;
  auto code = CUDA_SUCCESS;
  (void)await_one(client, [](const Delivery&) { return true; }, code);
  return code;
}

CUresult settle_deliveries(Client& client) {
  if (!deliveries_pending()) return CUDA_SUCCESS;
  auto first = CUDA_SUCCESS;
  const std::lock_guard lock(mutex);
  for (auto at = deliveries.begin(); at != deliveries.end();) {
    auto code = CUDA_SUCCESS;
    if (!client.poll(at->request, code)) {
      ++at;
      continue;
    }
    if (first == CUDA_SUCCESS) first = code;
    at = deliveries.erase(at);
  }
  count = deliveries.size();
  return first;
}

CUresult await_deliveries(Client& client, const void* bytes, uint64_t size_bytes) {
  if (!deliveries_pending()) return CUDA_SUCCESS;
  const auto* const begin = static_cast<const std::byte*>(bytes);
  const auto overlaps = [&](const Delivery& delivery) {
    return delivery.target < begin + size_bytes && begin < delivery.target + delivery.size_bytes;
  };
  auto first = CUDA_SUCCESS;
  auto code = CUDA_SUCCESS;
  while (await_one(client, overlaps, code)) {
    if (first == CUDA_SUCCESS) first = code;
  }
  return first;
}

}  // namespace rgpu::cuda
