#include "wire/cuda/elf_reader.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kOsAbiCuda12 = 0x33;  // e_flags' lowest byte is the architecture; from CUDA 13 on
constexpr uint8_t kOsAbiCuda13 = 0x41;  // its second one.
constexpr uint32_t kAcceleratedCuda12 = 0x800;
constexpr size_t kSymbolsReadMax = size_t{1} << 22;

Status error_of(const std::string& what) { return {Code::kInvalidArgument, "cubin: " + what}; }

bool is_inside(uint64_t at, uint64_t size, uint64_t whole) {
  return at <= whole && size <= whole - at;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The strings of a table. `bytes_left` bounds what reading names costs, since names, and whole
// tables, may share their bytes.
class Strings {
 public:
  Strings(std::span<const std::byte> table, uint64_t& bytes_left)
      : table_(table), bytes_left_(bytes_left) {}

  Result<std::string_view> at(uint64_t offset) {
    if (offset >= table_.size()) return error_of("a name outside its table");
    const auto* const start = reinterpret_cast<const char*>(table_.data()) + offset;
    const size_t size_max = std::min(table_.size() - offset, kSymbolNameBytesMax + 1);
    const void* const end = std::memchr(start, 0, size_max);
    if (end == nullptr) return error_of("a name without an end within 65536 bytes");
    const auto size = static_cast<size_t>(static_cast<const char*>(end) - start);
    if (size > bytes_left_) return error_of("more names than it has room for");
    bytes_left_ -= size;
    return std::string_view(start, size);
  }

 private:
  std::span<const std::byte> table_;
  uint64_t& bytes_left_;
};

// Some sharing is usual.
uint64_t name_bytes_max(std::span<const std::byte> file) { return 8 * uint64_t{file.size()}; }

Status check_header(const Elf64_Ehdr& header) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return error_of("not an ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return error_of("not of 64 bits, little-endian");
  }
  if (header.e_machine != kMachineCuda) {
    return error_of("for machine " + std::to_string(header.e_machine) + ", not for a GPU");
  }
  if (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)) {
    return error_of("section headers of another size");
  }
  if (header.e_phnum != 0 && header.e_phentsize != sizeof(Elf64_Phdr)) {
    return error_of("program headers of another size");
  }
  return {};
}

Arch arch_of(const Elf64_Ehdr& header) {
  if (header.e_ident[EI_OSABI] == kOsAbiCuda13) return {header.e_flags >> 8 & 0xff};
  Arch arch{header.e_flags & 0xff};
  if (header.e_ident[EI_OSABI] == kOsAbiCuda12 && (header.e_flags & kAcceleratedCuda12) != 0) {
    arch.variant = ArchVariant::kSpecific;
  }
  return arch;
}

}  // namespace

Result<ElfReader> ElfReader::open(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Elf64_Ehdr)) return error_of("shorter than its header");
  const auto header = load<Elf64_Ehdr>(bytes.data());
  RGPU_RETURN_IF_ERROR(check_header(header));
  ElfReader reader;
  reader.bytes_ = bytes;
  reader.arch_ = arch_of(header);
  RGPU_RETURN_IF_ERROR(reader.read_sections(header.e_shoff, header.e_shnum, header.e_shstrndx));
  return reader;
}

Status ElfReader::read_sections(uint64_t at, uint16_t count, uint16_t names) {
  if (count == 0) return {};
  if (!is_inside(at, uint64_t{count} * sizeof(Elf64_Shdr), bytes_.size())) {
    return error_of("section headers outside of it");
  }
  if (names >= count) return error_of("no table of section names");
  sections_.reserve(count);
  std::vector<uint32_t> name_offsets;
  for (size_t i = 0; i < count; ++i) {
    const auto header = load<Elf64_Shdr>(bytes_.data() + at + i * sizeof(Elf64_Shdr));
    ElfSection section{{}, header.sh_type, header.sh_link, header.sh_size, {}};
    if (header.sh_type != SHT_NOBITS && header.sh_type != SHT_NULL && header.sh_size != 0) {
      if (!is_inside(header.sh_offset, header.sh_size, bytes_.size())) {
        return error_of("section " + std::to_string(i) + " outside of it");
      }
      section.bytes = bytes_.subspan(header.sh_offset, header.sh_size);
    }
    sections_.push_back(section);
    name_offsets.push_back(header.sh_name);
  }
  uint64_t bytes_left = name_bytes_max(bytes_);
  Strings strings(sections_[names].bytes, bytes_left);
  for (size_t i = 1; i < count; ++i) {
    Result<std::string_view> name = strings.at(name_offsets[i]);
    if (!name) return name.error();
    sections_[i].name = *name;
  }
  return {};
}

Status ElfReader::read_symbols(const ElfSection& table, uint64_t& name_bytes_left,
                               std::vector<ElfSymbol>& out) const {
  if (table.link >= sections_.size()) return error_of("symbols without a table of names");
  Strings strings(sections_[table.link].bytes, name_bytes_left);
  const size_t count = table.bytes.size() / sizeof(Elf64_Sym);
  if (count > kSymbolsReadMax - out.size()) return error_of("too many symbols");
  for (size_t i = 0; i < count; ++i) {
    const auto symbol = load<Elf64_Sym>(table.bytes.data() + i * sizeof(Elf64_Sym));
    std::string_view name;
    if (symbol.st_name != 0) {
      Result<std::string_view> found = strings.at(symbol.st_name);
      if (!found) return found.error();
      name = *found;
    }
    out.push_back({name, static_cast<uint8_t>(symbol.st_info & 0xf), symbol.st_other,
                   symbol.st_shndx, symbol.st_size});
  }
  return {};
}

Result<std::vector<ElfSymbol>> ElfReader::symbols() const {
  std::vector<ElfSymbol> out;
  uint64_t name_bytes_left = name_bytes_max(bytes_);
  for (const ElfSection& section : sections_) {
    if (section.type == SHT_SYMTAB)
      RGPU_RETURN_IF_ERROR(read_symbols(section, name_bytes_left, out));
  }
  return out;
}

Result<uint64_t> elf_size_bytes(const std::byte* at) {
  const auto header = load<Elf64_Ehdr>(at);
  RGPU_RETURN_IF_ERROR(check_header(header));
  uint64_t end = sizeof(Elf64_Ehdr);
  const auto reach = [&end](uint64_t from, uint64_t size) {
    if (!is_inside(from, size, kImageBytesMax)) return false;
    end = std::max(end, from + size);
    return true;
  };
  const Status too_large = error_of("beyond " + std::to_string(kImageBytesMax) + " bytes");
  if (!reach(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) return too_large;
  if (!reach(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) return too_large;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = load<Elf64_Shdr>(at + header.e_shoff + i * sizeof(Elf64_Shdr));
    const bool has_bytes = section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
    if (has_bytes && !reach(section.sh_offset, section.sh_size)) return too_large;
  }
  for (size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = load<Elf64_Phdr>(at + header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!reach(segment.p_offset, segment.p_filesz)) return too_large;
  }
  return end;
}

}  // namespace rgpu::cuda
