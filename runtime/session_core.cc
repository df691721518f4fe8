#include "runtime/session_core.h"

namespace rgpu {

void SessionCore::lose(const Status& reason) {
  if (!fate.end(reason)) return;
  replies.wake_all();
  queue.announce_room();
  {
    const std::lock_guard lock(handshake.mutex);
  }
  handshake.changed.notify_all();
}

}  // namespace rgpu
