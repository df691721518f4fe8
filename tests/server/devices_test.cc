// A CPU server with several logical devices: whose a stream is, and who counts its memory.

#include "tests/server/engine_fixture.h"
#include "wire/stream.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;

class Devices : public EngineFixture {
 protected:
  Devices() : EngineFixture({.devices = 3, .threads = 1}) {}

  int64_t allocated(uint32_t device) {
    batch.command(Command::kMemory, {}, Bytes().add(uint64_t{9}).add(device));
    apply();
    const wire::Reply reply = sink.take(9).reply;
    return reply.values.empty() ? -1 : reply.values[0].integer;
  }
  BatchBuilder& on_device(uint32_t device, uint32_t index = 0) {
    return batch.stream(wire::stream_of(device, index));
  }
};

TEST_F(Devices, AStorageCountsWhereItsStreamIs) {
  batch.allocate(1, 100);
  on_device(1).allocate(2, 20);
  on_device(1, 7).allocate(3, 3);
  on_device(2).allocate(4, 5000);
  EXPECT_EQ(allocated(0), 100);
  EXPECT_EQ(allocated(1), 23);
  EXPECT_EQ(allocated(2), 5000);
  batch.free(2).free(4);  // From whichever stream.
  EXPECT_EQ(allocated(1), 3);
  EXPECT_EQ(allocated(2), 0);
}

TEST_F(Devices, WhatACopyMakesOnAnotherDeviceComesAfterWhatItCopies) {
  const uint32_t relu_ =
      batch.define(op("aten::relu_", "", {tensor_arg({2})}, {output_of(wire::OutputKind::kAlias)}));
  const uint32_t copy =
      batch.define(op("aten::copy_", "", {tensor_arg({2}), tensor_arg({2}), bool_arg(false)},
                      {output_of(wire::OutputKind::kAlias)}));
  for (Handle i = 0; i < 200; ++i) {
    const Handle source = 100 + 2 * i;
    on_device(0).upload<float>(source, {-1, float(i)}).record(relu_, {source});
    on_device(1).allocate(source + 1, 8).record(copy, {source + 1, source});
    on_device(0).upload<float>(source, {-9, -9});  // Not before it was copied.
  }
  apply();
  for (Handle i = 0; i < 200; ++i) {
    EXPECT_EQ(fetch<float>(101 + 2 * i, 2), (std::vector<float>{0, float(i)}));
  }
}

TEST_F(Devices, AStreamOfADeviceThatIsNotThereEndsTheSession) {
  on_device(3).allocate(1, 8);
  apply();
  expect_ended("stream 192 is one of device 3, but the server has 3 devices");
}

TEST_F(Devices, ABatchThatStartsOnSuchAStreamEndsTheSession) {
  batch.allocate(1, 8);
  apply(wire::stream_of(64, 5));
  expect_ended("stream 4101 is one of device 64, but the server has 3 devices");
}

TEST_F(Devices, TheMemoryOfADeviceThatIsNotThereEndsTheSession) {
  batch.command(Command::kMemory, {}, Bytes().add(uint64_t{9}).add(uint32_t{3}));
  apply();
  expect_ended("the memory of device 3");
}

}  // namespace
}  // namespace rgpu::server::testing
