// What a session holds, and what happens where that may not become more.

#include <c10/util/Exception.h>

#include "server/torch/memory_ledger.h"
#include "tests/server/engine_fixture.h"

namespace rgpu::server::testing {
namespace {

using wire::Command;
using wire::ErrorType;
using wire::OutputKind;

TEST(MemoryLedger, CountsWhatIsThereAndWhatWas) {
  MemoryLedger ledger(0, 0);
  ledger.replace(0, 100);
  ledger.replace(0, 50);
  ledger.replace(100, 0);
  ledger.replace(50, 80);
  MemoryLedger::Figures figures = ledger.figures();
  EXPECT_EQ(figures.bytes.current, 80u);
  EXPECT_EQ(figures.bytes.peak, 150u);
  EXPECT_EQ(figures.bytes.added, 230u);
  EXPECT_EQ(figures.bytes.removed, 150u);
  EXPECT_EQ(figures.storages.current, 1u);
  ledger.reset_peak();
  ledger.reset_totals();
  figures = ledger.figures();
  EXPECT_EQ(figures.bytes.current, 80u);
  EXPECT_EQ(figures.bytes.peak, 80u);
  EXPECT_EQ(figures.bytes.added, 0u);
}

TEST(MemoryLedger, AReservationCountsUntilItIsLetGoOf) {
  MemoryLedger ledger(2, 1000);
  ledger.replace(0, 400);
  {
    const MemoryLedger::Reservation room = ledger.reserve(600);
    EXPECT_THROW((void)ledger.reserve(1), c10::OutOfMemoryError);
    EXPECT_NO_THROW((void)ledger.reserve(0));
  }
  MemoryLedger::Reservation room = ledger.reserve(600);
  room.release();
  EXPECT_NO_THROW((void)ledger.reserve(600));
  EXPECT_THROW((void)ledger.reserve(UINT64_MAX), c10::OutOfMemoryError);
  EXPECT_EQ(ledger.in_use_text(),
            "400 bytes are in use by this session's tensors on rgpu:2, and the server's limit for "
            "a session (--memory-limit) is 1000 bytes");
}

TEST(MemoryLedger, WithoutALimitThereIsRoomForAll) {
  MemoryLedger ledger(0, 0);
  EXPECT_NO_THROW((void)ledger.reserve(UINT64_MAX));
  EXPECT_EQ(size_text(3u << 19), "1.50 MiB");
}

class MemoryLimit : public EngineFixture {
 protected:
  static constexpr uint64_t kLimit = 4096;
  MemoryLimit() : EngineFixture({.threads = 1, .memory_limit_bytes = kLimit}) {}

  std::vector<wire::Arg> memory() {
    batch.command(Command::kMemory, {}, Bytes().add(uint64_t{9}).add(uint32_t{0}));
    apply();
    return sink.take(9).reply.values;
  }
  void expect_out_of_memory(Handle handle) {
    const wire::RemoteError error = fetch_error(handle).error;
    EXPECT_EQ(error.type, ErrorType::kOutOfMemoryError) << error.message;
    EXPECT_NE(error.message.find("limit for a session (--memory-limit) is 4.00 KiB"),
              std::string::npos)
        << error.message;
    EXPECT_FALSE(sink.failure().has_value());
  }
  uint32_t define_add(int64_t count) {
    return batch.define(op("aten::add", "Tensor",
                           {tensor_arg({count}), tensor_arg({count}), scalar_int_arg()},
                           {new_output({count})}));
  }
};

TEST_F(MemoryLimit, AnAllocationUpToItIsFine) {
  batch.allocate(1, kLimit);
  EXPECT_EQ(memory()[0].integer, int64_t{kLimit});
  EXPECT_FALSE(sync().failed);
}

TEST_F(MemoryLimit, AnAllocationOverItPoisonsAndFreeingHelps) {
  batch.allocate(1, kLimit - 10).allocate(2, 11);
  expect_out_of_memory(2);
  batch.free(1).free(2).allocate(3, 11);
  EXPECT_FALSE(sync().failed);
  EXPECT_EQ(memory()[0].integer, 11);
  EXPECT_EQ(memory()[11].integer, 1);  // How often there was not enough.
}

TEST_F(MemoryLimit, AnUploadOverItPoisons) {
  batch.upload<float>(1, std::vector<float>(1025, 1.0F));
  expect_out_of_memory(1);
  EXPECT_EQ(memory()[0].integer, 0);
}

TEST_F(MemoryLimit, AResizeOverItPoisons) {
  batch.allocate(1, 100).command(Command::kResize, {1}, Bytes().add(uint64_t{5000}));
  expect_out_of_memory(1);
}

TEST_F(MemoryLimit, AnOpsResultOverItPoisonsBeforeTheOpRuns) {
  const uint32_t add = define_add(512);
  batch.upload<float>(1, std::vector<float>(512, 1.0F));
  batch.record(add, {1, 1, 2}, Bytes().add(int64_t{1}), 41);  // 4096 bytes in all.
  batch.record(add, {1, 1, 3}, Bytes().add(int64_t{1}), 42);
  EXPECT_EQ(fetch<float>(2, 512)[0], 2.0F);
  const wire::RemoteError error = fetch_error(3).error;
  EXPECT_EQ(error.type, ErrorType::kOutOfMemoryError);
  EXPECT_EQ(error.op, "aten::add");
  EXPECT_EQ(error.arguments, "float32[512], float32[512]");
  EXPECT_EQ(error.location, 42u);
  EXPECT_NE(error.message.find("tried to allocate 2.00 KiB"), std::string::npos);
  EXPECT_EQ(memory()[1].integer, int64_t{kLimit});  // The peak: nothing was allocated.
}

TEST_F(MemoryLimit, AResultOfUnknownSizeIsCheckedWhenItIsThere) {
  wire::OpTemplate nonzero =
      op("aten::nonzero", "", {tensor_arg({400})}, {output_of(OutputKind::kUnknown)});
  nonzero.replies = true;
  const uint32_t number = batch.define(nonzero);
  batch.upload<float>(1, std::vector<float>(400, 1.0F));  // 1600 bytes; the result takes 3200.
  batch.record(number, {1, 2}, Bytes().add(uint64_t{5}));
  apply();
  const wire::Reply reply = sink.take(5).reply;
  ASSERT_TRUE(reply.failed);
  EXPECT_EQ(reply.error.type, ErrorType::kOutOfMemoryError);
  EXPECT_EQ(memory()[0].integer, 1600);
}

TEST_F(MemoryLimit, AnAllocationsErrorGetsTheLineOfTheFirstOpThatNeedsIt) {
  const uint32_t relu_ =
      batch.define(op("aten::relu_", "", {tensor_arg({2000})}, {output_of(OutputKind::kAlias)}));
  batch.allocate(1, 8000).record(relu_, {1}, {}, 43).record(relu_, {1}, {}, 44);
  const wire::RemoteError error = fetch_error(1).error;
  EXPECT_EQ(error.op, "allocate");
  EXPECT_EQ(error.arguments, "8000 bytes");
  EXPECT_EQ(error.location, 43u);
  EXPECT_NE(error.message.find("needed by aten::relu_(float32[2000])"), std::string::npos);
  EXPECT_FALSE(sync().failed);  // It was told, and once is enough.
}

TEST_F(MemoryLimit, WhatIsFreeIsWhatTheLimitLeaves) {
  batch.allocate(1, 96);
  const std::vector<wire::Arg> figures = memory();
  EXPECT_EQ(figures[2].integer, 4000);
  EXPECT_EQ(figures[3].integer, 4096);
}

TEST_F(MemoryLimit, PeaksAndTotalsBeginAnewByRecordsInOrder) {
  const uint32_t peak = batch.define(op("rgpu::reset_peak_memory", "", {}, {}));
  const uint32_t total = batch.define(op("rgpu::reset_total_memory", "", {}, {}));
  batch.allocate(1, 1000).free(1).record(peak, {}).allocate(2, 10);
  EXPECT_EQ(memory()[1].integer, 10);
  EXPECT_EQ(memory()[4].integer, 1010);
  batch.record(total, {}).allocate(3, 1);
  EXPECT_EQ(memory()[4].integer, 1);
}

TEST_F(MemoryLimit, EmptyingTheCacheGivesBackWhatIsKept) {
  const uint32_t empty = batch.define(op("rgpu::empty_cache", "", {}, {}));
  EXPECT_FALSE(sync().failed);
  batch.record(empty, {});
  EXPECT_EQ(memory()[10].integer, 0);
}

TEST_F(MemoryLimit, ABuiltinTakesNoArguments) {
  (void)batch.define(op("rgpu::empty_cache", "", {int_arg(1)}, {}));
  apply();
  expect_ended("neither arguments nor results belong to it");
}

class NoMemoryLimit : public EngineFixture {};

TEST_F(NoMemoryLimit, WhatTheMachineDoesNotHaveIsOutOfMemoryToo) {
  batch.allocate(1, uint64_t{40} << 40);
  const wire::RemoteError error = fetch_error(1).error;
  EXPECT_EQ(error.type, ErrorType::kOutOfMemoryError);
  EXPECT_NE(error.message.find("are in use by this session's tensors on rgpu:0"),
            std::string::npos);
  batch.free(1).upload<float>(2, {3});
  EXPECT_EQ(fetch<float>(2, 1), (std::vector<float>{3}));
}

TEST_F(NoMemoryLimit, AKeptBlockIsGivenBackByEmptyingTheCache) {
  const auto kept = [this] {
    batch.command(Command::kMemory, {}, Bytes().add(uint64_t{9}).add(uint32_t{0}));
    apply();
    return sink.take(9).reply.values[10].integer;
  };
  const uint32_t empty = batch.define(op("rgpu::empty_cache", "", {}, {}));
  batch.allocate(1, 8u << 20).free(1);
  EXPECT_GE(kept(), int64_t{8} << 20);
  batch.record(empty, {});
  EXPECT_EQ(kept(), 0);
}

}  // namespace
}  // namespace rgpu::server::testing
