// Replies that the network has not sent yet: their bytes stay what they were, and no stream waits.
#include <thread>

#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::OutputKind;

class HeldDownload : public EngineFixture {
 protected:
  static constexpr size_t kCount = 20000;  // Large enough to be sent from the storage itself.
  HeldDownload() { sink.hold_payloads = true; }
  // Fetches handle 1, and goes on.
  void fetch_and_hold(uint64_t request, size_t offset_bytes = 0, size_t count = kCount) {
    batch.fetch(1, request, count * sizeof(float), offset_bytes);
  }
  std::vector<float> held(size_t index) const {
    const std::span<const std::byte> bytes = sink.held.at(index).payload;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  uint32_t define_add_() {
    return batch.define(op("aten::add_", "Scalar",
                           {tensor_arg({kCount}), scalar_int_arg(), scalar_int_arg()},
                           {output_of(OutputKind::kAlias)}));
  }
  const Bytes kOne = Bytes().add(int64_t{1}).add(int64_t{1});
};

TEST_F(HeldDownload, WritersGoOnWithACopy) {
  const uint32_t add_ = define_add_();
  batch.upload<float>(1, std::vector<float>(kCount, 1));
  fetch_and_hold(1);
  batch.record(add_, {1}, kOne);
  fetch_and_hold(2);
  fetch_and_hold(3);
  batch.record(add_, {1}, kOne).record(add_, {1}, kOne);
  fetch_and_hold(4);
  apply();  // Returns although nothing was sent.
  ASSERT_EQ(sink.held.size(), 4u);
  EXPECT_EQ(held(0), std::vector<float>(kCount, 1));
  EXPECT_EQ(held(1), std::vector<float>(kCount, 2));
  EXPECT_EQ(sink.held[1].payload.data(), sink.held[2].payload.data());
  EXPECT_EQ(held(3), std::vector<float>(kCount, 4));
}

TEST_F(HeldDownload, UploadsGoOnWithACopyOfWhatTheyLeave) {
  batch.upload<float>(1, std::vector<float>(kCount, 1));
  fetch_and_hold(1);
  batch.upload<float>(1, std::vector<float>(kCount, 5));
  fetch_and_hold(2);
  const float seven = 7;
  const auto* start = reinterpret_cast<const std::byte*>(&seven);
  batch.upload_part(1, {start, start + sizeof seven}, kCount * sizeof(float), sizeof seven);
  fetch_and_hold(3);
  apply();
  EXPECT_EQ(held(0), std::vector<float>(kCount, 1));
  EXPECT_EQ(held(1), std::vector<float>(kCount, 5));
  std::vector<float> wanted(kCount, 5);
  wanted[1] = 7;
  EXPECT_EQ(held(2), wanted);
}

TEST_F(HeldDownload, WithoutAWriterNothingIsCopied) {
  batch.upload<float>(1, std::vector<float>(kCount, 1));
  fetch_and_hold(1);
  fetch_and_hold(2);
  fetch_and_hold(3, 0, kCount / 4);  // A small part of it is.
  apply();
  EXPECT_EQ(sink.held[0].payload.data(), sink.held[1].payload.data());
  EXPECT_NE(sink.held[0].payload.data(), sink.held[2].payload.data());
}

TEST_F(HeldDownload, WhatAGraphHoldsTooIsWrittenInPlace) {
  const auto wants_gradient = tensor_arg({kCount}, kFloat, wire::TensorMeta::kRequiresGrad);
  wire::OpTemplate forward = op("aten::mul", "Tensor", {wants_gradient, wants_gradient},
                                {new_output({kCount}), output_of(OutputKind::kOpaque)});
  forward.keeps_graph = true;
  const uint32_t mul = batch.define(forward);
  const uint32_t zero_ =
      batch.define(op("aten::zero_", "", {tensor_arg({kCount})}, {output_of(OutputKind::kAlias)}));
  const uint32_t backward =
      batch.define(op("rgpu::graph_backward", "",
                      {tensor_arg({}), list_arg({tensor_arg({kCount})}), bool_arg(false)},
                      {new_output({kCount}), new_output({kCount})}));
  const std::vector<float> ones(kCount, 1);
  batch.upload<float>(1, ones).upload<float>(2, ones).record(mul, {1, 2, 3, 4});
  fetch_and_hold(1);
  apply();
  std::vector<OutgoingReply> unsent = std::move(sink.held);
  sink.hold_payloads = false;
  batch.record(zero_, {1}).record(backward, {4, 2, 5, 6});
  std::thread other([this] { apply(); });  // Waits, since a copy would leave the graph its ones.
  unsent.clear();
  other.join();
  EXPECT_EQ(fetch<float>(6, kCount), std::vector<float>(kCount, 0));
}

}  // namespace
}  // namespace rgpu::server::testing
