// incoming(): a batch as the network hands it to an engine, from one made by hand.
//
// Threading: one thread.
#pragma once

#include <cstring>
#include <memory>

#include "server/engine.h"
#include "tests/server/batch_builder.h"

namespace rgpu::server::testing {

inline std::unique_ptr<IncomingBatch> incoming(Engine& engine, const BatchBuilder::Built& built,
                                               uint64_t sequence, uint32_t stream = 0) {
  auto batch = std::make_unique<IncomingBatch>();
  batch->sequence = sequence;
  batch->stream = stream;
  batch->body = Body::copy_of(built.body);
  batch->reader = wire::BatchReader::open(batch->body.bytes()).value();
  for (const auto& bytes : built.segments) {
    Segment segment = engine.allocate_segment(bytes.size()).value();
    if (!bytes.empty()) std::memcpy(segment.bytes.data(), bytes.data(), bytes.size());
    batch->segments.push_back(std::move(segment));
  }
  return batch;
}

}  // namespace rgpu::server::testing
