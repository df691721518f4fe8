#include "cuda_shim/loader/static_runtime.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/loader/elf_builder.h"

namespace rgpu::loader {
namespace {

// As our libcudart: names are all that counts.
std::vector<std::byte> exports() {
  return ElfBuilder()
      .add("__cudaRegisterFatBinary", 0x10, 16)
      .add("cudaRuntimeGetVersion", 0x20, 16)
      .add("cudaMalloc", 0x30, 16)
      .add("cudaFree", 0x40, 16)
      .build(SHT_DYNSYM);
}

// What makes a file hold a runtime.
ElfBuilder runtime() {
  ElfBuilder builder;
  builder.add("__cudaRegisterFatBinary", 0x1000, 64).add("cudaRuntimeGetVersion", 0x1100, 64);
  return builder;
}

// The entries found in a file; it must outlive them.
std::vector<Entry> entries_of(const std::vector<std::byte>& bytes) {
  const std::vector<std::byte> library = exports();
  const auto found = std::make_unique<StaticRuntime>(ElfFile(bytes), ElfFile(library));
  return {found->entries().begin(), found->entries().end()};
}

uint32_t room_of(const std::vector<std::byte>& bytes, const std::string& name) {
  for (const Entry& entry : entries_of(bytes)) {
    if (entry.name == name) return entry.room_bytes;
  }
  ADD_FAILURE() << name << " was not found";
  return 0;
}

std::vector<std::string> names_of(const std::vector<std::byte>& bytes) {
  std::vector<std::string> names;
  for (const Entry& entry : entries_of(bytes)) names.emplace_back(entry.name);
  return names;
}

int version_of(const ElfBuilder& builder) {
  const std::vector<std::byte> bytes = builder.build();
  return StaticRuntime::version(ElfFile(bytes));
}

TEST(StaticRuntime, ItsVersionIsToldByFunctionsThatCameAndWent) {
  EXPECT_EQ(version_of(runtime()), 13);
  EXPECT_EQ(version_of(runtime().add("cudaGetDeviceProperties_v2", 0x1200, 64)), 12);
  EXPECT_EQ(version_of(runtime().add("cudaBindTexture", 0x1200, 64)), 11);
}

TEST(StaticRuntime, AProgramWithSomeOfTheNamesHoldsNone) {
  EXPECT_EQ(version_of(ElfBuilder()), 0);
  EXPECT_EQ(version_of(ElfBuilder().add("cudaMalloc", 0x1000, 64)), 0);
  EXPECT_EQ(version_of(ElfBuilder().add("__cudaRegisterFatBinary", 0x1000, 64)), 0);
  EXPECT_EQ(version_of(ElfBuilder()
                           .add_undefined("__cudaRegisterFatBinary")
                           .add_undefined("cudaRuntimeGetVersion")),
            0);
  EXPECT_EQ(version_of(ElfBuilder()
                           .add("__cudaRegisterFatBinary", 0x1000, 64, STT_OBJECT)
                           .add("cudaRuntimeGetVersion", 0x1100, 64)),
            0);
}

TEST(StaticRuntime, LocalFunctionsCount) {
  const auto bytes = runtime().add("cudaMalloc", 0x1200, 64, STT_FUNC, STB_LOCAL).build();
  EXPECT_EQ(names_of(bytes), (std::vector<std::string>{"__cudaRegisterFatBinary",
                                                       "cudaRuntimeGetVersion", "cudaMalloc"}));
}

TEST(StaticRuntime, FunctionsThatOursLacksCountWhereTheArchiveLies) {
  const auto bytes = runtime()
                         .add("cudaCheckOfTheProgram", 0x800, 64)
                         .add("cudaOfALaterRelease", 0x1080, 64)
                         .add("helper", 0x10c0, 64)
                         .add("cudaFree", 0x1200, 64)
                         .add("__cudaUnregisterBinaryUtil", 0x1240, 64)
                         .build();
  EXPECT_EQ(names_of(bytes),
            (std::vector<std::string>{"__cudaRegisterFatBinary", "cudaOfALaterRelease",
                                      "cudaRuntimeGetVersion", "cudaFree"}));
}

TEST(StaticRuntime, OneAddressIsOneEntry) {
  const auto bytes = runtime().add("cudaMalloc", 0x1200, 64).add("cudaFree", 0x1200, 64).build();
  EXPECT_EQ(names_of(bytes).size(), 3U);
}

TEST(StaticRuntime, RoomIsThePaddingToo) {
  EXPECT_EQ(room_of(runtime().add("cudaMalloc", 0x1200, 3).build(), "cudaMalloc"), 16U);
  EXPECT_EQ(room_of(runtime().add("cudaMalloc", 0x1200, 640).build(), "cudaMalloc"), 16U);
}

TEST(StaticRuntime, RoomEndsAtANeighbour) {
  EXPECT_EQ(
      room_of(runtime().add("cudaMalloc", 0x1200, 3).add("n", 0x1207, 3).build(), "cudaMalloc"),
      7U);
  // A label without type or size is one.
  EXPECT_EQ(room_of(runtime().add("cudaMalloc", 0x1200, 32).add("n", 0x1209, 0, STT_NOTYPE).build(),
                    "cudaMalloc"),
            9U);
}

TEST(StaticRuntime, WithoutAlignmentThereIsNoPadding) {
  EXPECT_EQ(room_of(runtime().add("cudaMalloc", 0x1204, 6).build(), "cudaMalloc"), 6U);
}

TEST(StaticRuntime, ThereIsABound) {
  ElfBuilder builder = runtime();
  for (uint64_t i = 0; i < 2 * StaticRuntime::kEntriesMax; ++i) {
    builder.add("cudaNumber" + std::to_string(i), 0x2000 + 64 * i, 64);
  }
  builder.add("cudaFree", 0x2000 + 64 * 4 * StaticRuntime::kEntriesMax, 64);
  EXPECT_EQ(entries_of(builder.build()).size(), StaticRuntime::kEntriesMax);
}

}  // namespace
}  // namespace rgpu::loader
