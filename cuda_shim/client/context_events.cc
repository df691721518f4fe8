#include "cuda_shim/client/context_events.h"

#include <vector>

#include "cuda_shim/client/errors.h"

namespace rgpu::cuda {
namespace {

using wire::Command;

std::vector<uint32_t> rings_of(Context& context) {
  std::vector<uint32_t> rings{context.legacy.number};
  streams().for_each([&](const Stream& stream) {
    if (stream.context == &context) rings.push_back(stream.number);
  });
  return rings;
}

// A stream of this function's own that waits for nobody by itself. Its work outlives it.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  ~Meeting() {
    if (stream_ != nullptr) (void)destroy_stream(*stream_);
  }
  [[nodiscard]] CUresult open(Context& context) {
    return create_stream(context, CU_STREAM_NON_BLOCKING, 0, stream_);
  }
  [[nodiscard]] Stream& stream() noexcept { return *stream_; }

 private:
  Stream* stream_ = nullptr;
};

}  // namespace

CUresult record_event_of_all(Context& context, Event& event) {
  Client* const client = connected_client();
  if (client == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const std::vector<uint32_t> rings = rings_of(context);
  Meeting meeting;
  RGPU_TRY(meeting.open(context));
  for (const uint32_t ring : rings) {
    const uint64_t reached = client->new_number();
    RGPU_TRY(client->append(ring, Command::kRecordEvent, reached));
    RGPU_TRY(client->append(meeting.stream().number, Command::kWaitEvent, reached));
    client->session().free(reached);
  }
  return record_event(event, meeting.stream());
}

CUresult wait_event_of_all(Context& context, Event& event) {
  Client* const client = connected_client();
  if (client == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Meeting meeting;
  RGPU_TRY(meeting.open(context));  // Waits for what was waited for before.
  RGPU_TRY(wait_event(meeting.stream(), event));
  // Of its own number: the program's event may be recorded anew.
  const uint64_t reached = client->new_number();
  RGPU_TRY(client->append(meeting.stream().number, Command::kRecordEvent, reached));
  for (const uint32_t ring : rings_of(context)) {
    if (ring == meeting.stream().number) continue;
    RGPU_TRY(client->append(ring, Command::kWaitEvent, reached));
  }
  const uint64_t before = context.awaited_event.exchange(reached);
  if (before != 0) client->session().free(before);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::cuda
