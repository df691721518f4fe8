// Download: keeps a storage as it is until a reply with its bytes was sent, without a copy.
//
// Who writes to the storage meanwhile goes on with a copy of it, so that no stream waits for the
// network. How many bytes may be unsent the EngineSink bounds, and with it what such copies take.
//
// Threading: begin() and release_for_write() by the stream that runs a record with the slot; a
//            download ends on whichever thread sent it.
// Errors:    none: where there is no memory for the copy, the writer waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/torch/engine_state.h"
#include "server/torch/slot.h"

namespace rgpu::server {

class Download {
 public:
  // Whether these bytes are better sent from the storage itself than from a copy.
  [[nodiscard]] static bool is_worth_it(const Slot& slot, uint64_t size_bytes);
  [[nodiscard]] static std::shared_ptr<void> begin(Slot& slot);

  Download(c10::Storage storage, std::shared_ptr<std::atomic<uint32_t>> count);
  ~Download();
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

 private:
  c10::Storage storage_;
  std::shared_ptr<std::atomic<uint32_t>> count_;
};

// The slot's storage may be written to when this returns. `keeps_contents`: not all of it will be.
void release_for_write(Slot& slot, const EngineState& state, bool keeps_contents = true);

}  // namespace rgpu::server
