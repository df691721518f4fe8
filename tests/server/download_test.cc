// Replies that the network has not sent yet: their bytes stay what they were, and no stream waits.
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

}  // namespace
}  // namespace rgpu::server::testing
