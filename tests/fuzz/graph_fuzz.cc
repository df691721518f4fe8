// What decodes keeps the rules, and its own encoding decodes to the same bytes again.
#include "wire/graph.h"
#include "wire/limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace rgpu::wire;
  const auto graph = decode_graph(std::as_bytes(std::span(data, size_bytes)));
  if (!graph) return 0;
  RGPU_CHECK(check_graph(*graph).ok());
  const auto bytes = encode_graph(*graph);
  if (bytes.size() > rgpu::limits::kGraphSizeBytesMax) return 0;
  const auto again = decode_graph(bytes);
  RGPU_CHECK(again.has_value());
  RGPU_CHECK(encode_graph(*again) == bytes);
  return 0;
}
