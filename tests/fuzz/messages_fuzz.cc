// The first byte chooses the message. What decodes can be encoded, and its encoding decodes to the
// same bytes again.
#include "wire/limits.h"
#include "wire/messages.h"

namespace rgpu::wire {
namespace {

template <typename Message>
void check_same_when_encoded(const Result<Message>& message,
                             Result<Message> (*decode)(std::span<const std::byte>)) {
  if (!message) return;
  const auto bytes = encode(*message);
  if (bytes.size() > limits::kBodySizeBytesMax) return;
  const auto again = decode(bytes);
  RGPU_CHECK(again.has_value());
  RGPU_CHECK(encode(*again) == bytes);
}

}  // namespace
}  // namespace rgpu::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace rgpu::wire;
  if (size_bytes == 0) return 0;
  // Behind the first byte the body is not aligned, as the decoders allow.
  const auto body = std::as_bytes(std::span(data, size_bytes)).subspan(1);
  switch (data[0] % 4) {
    case 0:
      check_same_when_encoded(decode_hello(body), decode_hello);
      break;
    case 1:
      check_same_when_encoded(decode_hello_reply(body), decode_hello_reply);
      break;
    case 2:
      check_same_when_encoded(decode_reply(body), decode_reply);
      break;
    default:
      check_same_when_encoded(decode_goodbye(body), decode_goodbye);
      break;
  }
  return 0;
}
