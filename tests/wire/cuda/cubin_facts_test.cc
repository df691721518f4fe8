// What a client reads from a cubin, held against the PTX of the same source; then damaged cubins.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "tests/wire/cuda/fixture.h"
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

ImageFacts facts_of_fixture(const std::string& name) {
  Result<ImageFacts> facts = facts_of_cubin(fixture(name));
  EXPECT_TRUE(facts) << name << ": " << facts.error().message();
  return facts ? *facts : ImageFacts();
}

std::string error_of(std::span<const std::byte> bytes) {
  const auto facts = facts_of_cubin(bytes);
  return facts ? "" : facts.error().message();
}

template <typename T>
std::vector<std::byte> with(std::vector<std::byte> bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

// Where a record of `attribute` with `size` bytes of value stands; the first one in .nv.info.saxpy
// or elsewhere.
size_t find_record(std::span<const std::byte> bytes, uint8_t attribute, uint16_t size) {
  for (size_t at = 0; at + 4 + size <= bytes.size(); at += 4) {
    uint16_t found = 0;
    std::memcpy(&found, bytes.data() + at + 2, sizeof found);
    if (bytes[at] == std::byte{4} && bytes[at + 1] == std::byte{attribute} && found == size) {
      return at + 4;
    }
  }
  ADD_FAILURE() << "no record of attribute " << int{attribute};
  return 0;
}

class CubinFacts : public testing::TestWithParam<uint32_t> {
 protected:
  ImageFacts cubin_ = facts_of_fixture("layouts_" + std::to_string(GetParam()) + ".cubin");
  Result<ImageFacts> ptx_ =
      facts_of_ptx(text_fixture(GetParam() < 90 ? "layouts_75.ptx" : "layouts_90.ptx"));
};

TEST_P(CubinFacts, HasTheKernelsOfThePtx) {
  ASSERT_TRUE(ptx_);
  EXPECT_EQ(cubin_.arch, Arch{GetParam()});
  ASSERT_EQ(cubin_.kernels.size(), ptx_->kernels.size());
  for (const KernelLayout& expected : ptx_->kernels) {
    const KernelLayout* const kernel = find_kernel(cubin_, expected.name);
    ASSERT_NE(kernel, nullptr) << expected.name;
    EXPECT_EQ(kernel->block_max, expected.block_max) << expected.name;
    EXPECT_EQ(kernel->block_required, expected.block_required) << expected.name;
    // The assembler may round up.
    EXPECT_GE(kernel->static_shared_size_bytes, expected.static_shared_size_bytes);
    EXPECT_LE(kernel->static_shared_size_bytes, expected.static_shared_size_bytes + 15);
  }
}

TEST_P(CubinFacts, HasTheParametersOfThePtx) {
  ASSERT_TRUE(ptx_);
  for (const KernelLayout& expected : ptx_->kernels) {
    const KernelLayout* const kernel = find_kernel(cubin_, expected.name);
    ASSERT_NE(kernel, nullptr) << expected.name;
    if (expected.name != "_Z7alignedc7Aligned5EmptycPi") {
      EXPECT_EQ(kernel->parameters, expected.parameters) << expected.name;
      EXPECT_EQ(kernel->parameters_size_bytes, expected.parameters_size_bytes);
      continue;
    }
    // Alignments above 16 count from the constant bank's start, and what the system keeps there
    // is of another size on each architecture. So offsets differ, and sizes never do.
    ASSERT_EQ(kernel->parameters.size(), expected.parameters.size());
    const std::map<uint32_t, uint32_t> bank_starts{
        {75, 0x160}, {80, 0x160}, {90, 0x210}, {100, 0x380}};
    EXPECT_EQ((bank_starts.at(GetParam()) + kernel->parameters[1].offset_bytes) % 64, 0U);
    for (size_t i = 0; i < expected.parameters.size(); ++i) {
      EXPECT_EQ(kernel->parameters[i].size_bytes, expected.parameters[i].size_bytes);
    }
  }
}

TEST_P(CubinFacts, HasTheVariablesOfThePtx) {
  ASSERT_TRUE(ptx_);
  for (const Variable& expected : ptx_->variables) {
    const Variable* const variable = find_variable(cubin_, expected.name);
    ASSERT_NE(variable, nullptr) << expected.name;
    EXPECT_EQ(variable->size_bytes, expected.size_bytes) << expected.name;
    EXPECT_EQ(variable->space, expected.space) << expected.name;
    EXPECT_EQ(variable->is_managed, expected.is_managed) << expected.name;
  }
  EXPECT_EQ(cubin_.variables.size(), ptx_->variables.size());
}

INSTANTIATE_TEST_SUITE_P(Architectures, CubinFacts, testing::Values(75, 80, 90, 100));

TEST(Cubin, OfCuda12KeepsItsArchitectureElsewhere) {
  std::vector<std::byte> bytes = fixture("small_80.cubin");
  bytes[EI_OSABI] = std::byte{0x33};
  bytes = with<uint32_t>(std::move(bytes), offsetof(Elf64_Ehdr, e_flags), 0x5a0d5a);
  Result<ImageFacts> facts = facts_of_cubin(bytes);
  ASSERT_TRUE(facts) << facts.error().message();
  EXPECT_EQ(facts->arch, (Arch{90, ArchVariant::kSpecific}));
  EXPECT_EQ(facts->kernels.size(), 1U);
}

TEST(Cubin, AnotherMachinesFileIsAnError) {
  const std::vector<std::byte> bytes = fixture("small_80.cubin");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, offsetof(Elf64_Ehdr, e_machine), 62)),
            "cubin: for machine 62, not for a GPU");
  EXPECT_EQ(error_of(with<uint8_t>(bytes, EI_CLASS, 1)), "cubin: not of 64 bits, little-endian");
  EXPECT_EQ(error_of(with<uint8_t>(bytes, 0, 0)), "cubin: not an ELF file");
  EXPECT_EQ(error_of({}), "cubin: shorter than its header");
}

TEST(Cubin, TablesOutsideOfItAreErrors) {
  const std::vector<std::byte> bytes = fixture("small_80.cubin");
  EXPECT_EQ(error_of(with<uint64_t>(bytes, offsetof(Elf64_Ehdr, e_shoff), bytes.size())),
            "cubin: section headers outside of it");
  EXPECT_EQ(error_of(with<uint64_t>(bytes, offsetof(Elf64_Ehdr, e_shoff), UINT64_MAX)),
            "cubin: section headers outside of it");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, offsetof(Elf64_Ehdr, e_shentsize), 8)),
            "cubin: section headers of another size");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, offsetof(Elf64_Ehdr, e_shstrndx), 999)),
            "cubin: no table of section names");
}

TEST(Cubin, ParametersThatContradictThemselvesAreErrors) {
  const std::vector<std::byte> bytes = fixture("small_80.cubin");
  const size_t last = find_record(bytes, 0x17, 12);  // Records run from the last to the first.
  EXPECT_EQ(error_of(with<uint16_t>(bytes, last + 6, 20)),
            "cubin: kernel add: parameter 3 overlaps the one before");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, last + 4, 2)),
            "cubin: kernel add: two layouts of parameter 2");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, last + 4, 4)),
            "cubin: kernel add: nothing about parameter 3");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, last + 4, 40'000)),
            "cubin: kernel add: too many parameters");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, last + 6, 40'000)),
            "cubin: kernel add: more than 32764 bytes");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, find_record(bytes, 0x0a, 8) + 6, 36)),
            "cubin: kernel add: parameters up to byte 32 in a bank of 36");
  EXPECT_EQ(error_of(with<uint16_t>(bytes, last - 2, 60'000)),
            "cubin: kernel add: a record beyond its section");
}

// A cubin of symbols alone, all with one name: what reading it may cost is bounded by its size.
std::vector<std::byte> cubin_of_one_name(size_t symbols, size_t name_size) {
  const size_t names_at = sizeof(Elf64_Ehdr);
  const size_t symbols_at = names_at + name_size + 2;
  const size_t sections_at = symbols_at + symbols * sizeof(Elf64_Sym);
  std::vector<std::byte> bytes(sections_at + 3 * sizeof(Elf64_Shdr));
  std::memset(bytes.data() + names_at + 1, 'n', name_size);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = 190;
  header.e_shoff = sections_at;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 1;
  std::memcpy(bytes.data(), &header, sizeof header);
  for (size_t i = 0; i < symbols; ++i) {
    const Elf64_Sym symbol{.st_name = 1,
                           .st_info = STT_FUNC,
                           .st_other = 0x10,
                           .st_shndx = 1,
                           .st_value = 0,
                           .st_size = 0};
    std::memcpy(bytes.data() + symbols_at + i * sizeof symbol, &symbol, sizeof symbol);
  }
  Elf64_Shdr names{};
  names.sh_type = SHT_STRTAB;
  names.sh_offset = names_at;
  names.sh_size = name_size + 2;
  Elf64_Shdr table{};
  table.sh_type = SHT_SYMTAB;
  table.sh_link = 1;
  table.sh_offset = symbols_at;
  table.sh_size = symbols * sizeof(Elf64_Sym);
  std::memcpy(bytes.data() + sections_at + sizeof names, &names, sizeof names);
  std::memcpy(bytes.data() + sections_at + 2 * sizeof names, &table, sizeof table);
  return bytes;
}

TEST(Cubin, NamesThatShareTheirBytesHaveABound) {
  EXPECT_EQ(error_of(cubin_of_one_name(100, 100)), "");
  EXPECT_EQ(error_of(cubin_of_one_name(1000, 60'000)), "cubin: more names than it has room for");
  EXPECT_EQ(error_of(cubin_of_one_name(1, kSymbolNameBytesMax)), "");
  EXPECT_EQ(error_of(cubin_of_one_name(1, kSymbolNameBytesMax + 1)),
            "cubin: a name without an end within 65536 bytes");
}

TEST(Cubin, NoPrefixIsReadBeyondItsEnd) {
  const std::vector<std::byte> bytes = fixture("small_80.cubin");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<std::byte> prefix(bytes.begin(),
                                        bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const auto facts = facts_of_cubin(prefix);
    EXPECT_TRUE(!facts || facts->kernels.size() <= 1);
  }
}

TEST(Cubin, NoByteCanMakeItReadBeyondItsEnd) {
  const std::vector<std::byte> bytes = fixture("small_80.cubin");
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const std::byte value : {std::byte{0}, std::byte{1}, std::byte{0x7f}, std::byte{0xff}}) {
      const auto facts = facts_of_cubin(with(bytes, at, value));
      EXPECT_TRUE(facts || !facts.error().message().empty());
    }
  }
}

}  // namespace
}  // namespace rgpu::cuda
