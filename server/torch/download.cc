#include "server/torch/download.h"

#include <utility>

#include "server/torch/device.h"

namespace rgpu::server {
namespace {

// Below it a copy is cheaper than what a later writer may have to do.
constexpr uint64_t kSizeBytesMin = 64u << 10;

// False: the storage has other owners, which must see what is written, or there is no memory.
bool go_on_with_a_copy(Slot& slot, const EngineState& state, bool keeps_contents) {
  // Read in this order, so that a download that ends meanwhile only makes it look shared.
  const size_t owners = slot.storage().use_count();
  const uint32_t downloads = *slot.downloads;
  if (downloads == 0) return true;
  if (owners > slot.own_references() + downloads) return false;
  try {
    const uint64_t size_bytes = slot.size_bytes();
    c10::Storage copy = state.allocate(size_bytes);
    if (keeps_contents) copy_bytes(copy, 0, slot.storage(), 0, size_bytes);
    slot.set_storage(std::move(copy));
    slot.downloads.reset();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

Download::Download(c10::Storage storage, std::shared_ptr<std::atomic<uint32_t>> count)
    : storage_(std::move(storage)), count_(std::move(count)) {
  ++*count_;
}

Download::~Download() {
  --*count_;
  count_->notify_all();
}

bool Download::is_worth_it(const Slot& slot, uint64_t size_bytes) {
  // A small part of a large storage would make its next writer copy the whole.
  return slot.storage().device().is_cpu() && size_bytes >= kSizeBytesMin &&
         size_bytes >= slot.size_bytes() / 2;
}

std::shared_ptr<void> Download::begin(Slot& slot) {
  if (!slot.downloads) slot.downloads = std::make_shared<std::atomic<uint32_t>>(0);
  return std::make_shared<Download>(slot.storage(), slot.downloads);
}

void release_for_write(Slot& slot, const EngineState& state, bool keeps_contents) {
  if (!slot.downloads || *slot.downloads == 0) return;
  if (go_on_with_a_copy(slot, state, keeps_contents)) return;
  for (uint32_t left = *slot.downloads; left != 0; left = *slot.downloads) {
    slot.downloads->wait(left);
  }
}

}  // namespace rgpu::server
