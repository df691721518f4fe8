#include "torch_backend/device/downloads.h"

#include <optional>
#include <utility>
#include <vector>

#include "torch_backend/device/client.h"

namespace rgpu::backend {

Downloads& Downloads::get() noexcept {
  static auto* const downloads = new Downloads();  // Leaked, as the sessions are.
  return *downloads;
}

void Downloads::add(Session& session, uint64_t request) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({&session, request});
}

void Downloads::collect() {
  std::optional<Result<wire::Reply>> failed;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(pending_, [&](const Pending& pending) {
      std::optional<Result<wire::Reply>> reply = pending.session->poll(pending.request);
      if (!reply) return false;
      if (!failed && (!*reply || (*reply)->failed)) failed = std::move(reply);
      return true;
    });
  }
  if (failed) raise_if_failed(*failed);
}

void Downloads::make_room() {
  Pending oldest;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() < kDownloadsMax) return;
    oldest = pending_.front();
    pending_.pop_front();
  }
  raise_if_failed(oldest.session->wait(oldest.request, Client::hooks().observer()));
}

}  // namespace rgpu::backend
