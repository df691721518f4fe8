// A batch is decoded as one of a CUDA session, over a device that does nothing. Whatever the bytes
// are, the session goes on or ends with a reason.
#include <cstring>

#include "server/cuda/cuda_engine.h"
#include "server/cuda/null_driver.h"

namespace rgpu::server::cuda {
namespace {

class Sink final : public EngineSink {
 public:
  void complete(std::span<OutgoingReply> replies, uint64_t) override {
    for (const OutgoingReply& reply : replies) RGPU_CHECK(reply.reply.values.size() >= 2);
  }
  void failed(Status reason) override { RGPU_CHECK(!reason.ok()); }
};

void check(std::span<const std::byte> bytes) {
  constexpr uint64_t kSegmentSizeBytesMax = 1u << 16;
  Sink sink;
  WorkClock clock;
  CudaEngine engine({sink, clock},
                    []() -> Result<std::unique_ptr<Driver>> { return make_null_driver(2); });
  wire::Hello hello;
  hello.cuda = wire::CudaHello{{uint64_t{1} << 45}, uint64_t{1} << 40};
  RGPU_CHECK(engine.greet(hello).ok());
  auto batch = std::make_unique<IncomingBatch>();
  batch->sequence = 1;
  std::vector<std::byte> body(bytes.begin(), bytes.end());
  Result<wire::BatchReader> reader = wire::BatchReader::open(body);
  if (!reader) return;
  batch->reader = *reader;
  for (const uint64_t size_bytes : batch->reader.segments()) {
    if (size_bytes > kSegmentSizeBytesMax) return;
    Result<Segment> segment = engine.allocate_segment(size_bytes);
    if (!segment) return;
    std::memset(segment->bytes.data(), 1, segment->bytes.size());
    batch->segments.push_back(*std::move(segment));
  }
  engine.apply(std::move(batch));
}

}  // namespace
}  // namespace rgpu::server::cuda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rgpu::server::cuda::check(std::as_bytes(std::span(data, size)));
  return 0;
}
