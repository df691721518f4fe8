// What parses as a preamble is the bytes it came from.
#include <cstring>

#include "wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace rgpu::wire;
  std::array<std::byte, sizeof(Preamble)> bytes{};
  std::memcpy(bytes.data(), data, std::min(size_bytes, bytes.size()));
  const auto preamble = parse_preamble(bytes);
  RGPU_CHECK(preamble || !preamble.error().message().empty());
  RGPU_CHECK(!preamble || to_bytes(*preamble) == bytes);
  return 0;
}
