#include "cuda_shim/loader/elf_file.h"

#include <gtest/gtest.h>
#include <link.h>

#include <random>
#include <string>
#include <vector>

#include "tests/cuda/loader/elf_builder.h"

// Found by its name in this very program.
extern "C" __attribute__((used)) int rgpu_elf_file_test_landmark(int number) { return number + 1; }

namespace rgpu::loader {
namespace {

std::vector<std::string> names_of(std::span<const std::byte> bytes) {
  std::vector<std::string> names;
  ElfFile(bytes).each_symbol([&](const Symbol& symbol) { names.emplace_back(symbol.name); });
  return names;
}

struct Program {
  uint64_t bias = 0;
  const void* headers = nullptr;
  uint64_t header_count = 0;
};

Program this_program() {
  Program program;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) {
        *static_cast<Program*>(argument) = {info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum};
        return 1;
      },
      &program);
  return program;
}

TEST(ElfFile, FindsAFunctionOfThisProgramWhereItIs) {
  const MappedFile mapped("/proc/self/exe");
  const ElfFile file(mapped.bytes());
  ASSERT_TRUE(file.is_valid());
  uint64_t address = 0;
  file.each_symbol([&](const Symbol& symbol) {
    if (std::string(symbol.name) != "rgpu_elf_file_test_landmark") return;
    EXPECT_TRUE(symbol.is_function);
    EXPECT_GT(symbol.size_bytes, 0U);
    address = symbol.address;
  });
  EXPECT_EQ(this_program().bias + address,
            reinterpret_cast<uint64_t>(&rgpu_elf_file_test_landmark));
}

TEST(ElfFile, KnowsWhetherItIsTheFileThatWasLoaded) {
  const MappedFile mapped("/proc/self/exe");
  const ElfFile file(mapped.bytes());
  const Program program = this_program();
  EXPECT_TRUE(file.has_segments(program.headers, program.header_count));
  EXPECT_FALSE(file.has_segments(program.headers, program.header_count - 1));
  std::vector<std::byte> changed(program.header_count * sizeof(Elf64_Phdr));
  std::memcpy(changed.data(), program.headers, changed.size());
  changed[changed.size() / 2] ^= std::byte{1};
  EXPECT_FALSE(file.has_segments(changed.data(), program.header_count));
}

TEST(ElfFile, ReadsSymbolsOfEitherTable) {
  ElfBuilder builder;
  builder.add("first", 0x1000, 16).add_undefined("second").add("third", 8, 4, STT_TLS);
  for (const Elf64_Word type : {SHT_SYMTAB, SHT_DYNSYM}) {
    const std::vector<std::byte> bytes = builder.build(type);
    EXPECT_EQ(names_of(bytes), (std::vector<std::string>{"first", "second", "third"}));
    ElfFile(bytes).each_symbol([](const Symbol& symbol) {
      EXPECT_EQ(symbol.is_defined, std::string(symbol.name) == "first");
    });
  }
}

TEST(ElfFile, AFileOfAnotherKindHasNoSymbols) {
  const std::vector<std::byte> good = ElfBuilder().add("first", 0x1000, 16).build();
  for (const size_t offset :
       {size_t{0}, size_t{EI_CLASS}, size_t{EI_DATA}, offsetof(Elf64_Ehdr, e_machine)}) {
    std::vector<std::byte> bad = good;
    bad[offset] ^= std::byte{0x55};
    EXPECT_FALSE(ElfFile(bad).is_valid()) << offset;
    EXPECT_TRUE(names_of(bad).empty()) << offset;
  }
  EXPECT_FALSE(ElfFile({}).is_valid());
  EXPECT_TRUE(MappedFile("/no/such/file").bytes().empty());
  EXPECT_TRUE(MappedFile("/").bytes().empty());
}

// Under AddressSanitizer a read outside a vector's memory ends the test.
TEST(ElfFile, NothingOutsideATruncatedFileIsRead) {
  const std::vector<std::byte> good =
      ElfBuilder().add("first", 0x1000, 16).add("second", 0x1010, 16).build();
  for (size_t size = 0; size < good.size(); ++size) {
    const std::vector<std::byte> part(good.data(), good.data() + size);
    EXPECT_TRUE(names_of(part).empty()) << size;
  }
  EXPECT_EQ(names_of(good).size(), 2U);
}

TEST(ElfFile, NothingOutsideAScrambledFileIsRead) {
  const std::vector<std::byte> good =
      ElfBuilder().add("first", 0x1000, 16).add("second", 0x1010, 16).build();
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bad = good;
    for (int change = 0; change < 4; ++change) {
      bad[random() % bad.size()] = static_cast<std::byte>(random() % 256);
    }
    for (const std::string& name : names_of(bad)) ASSERT_LT(name.size(), bad.size());
    ElfFile(bad).each_segment([](const Elf64_Phdr&) {});
  }
}

}  // namespace
}  // namespace rgpu::loader
