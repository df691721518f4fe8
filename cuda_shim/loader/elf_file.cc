#include "cuda_shim/loader/elf_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rgpu::loader {
namespace {
#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
}  // namespace

MappedFile::MappedFile(const char* path) {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  struct stat status{};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    const auto size_bytes = static_cast<size_t>(status.st_size);
    void* mapped = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(mapped), size_bytes};
  }
  ::close(file);
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

ElfFile::ElfFile(std::span<const std::byte> bytes) : bytes_(bytes) {
  Elf64_Ehdr header;
  if (!holds(0, sizeof header)) return;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachine) {
    return;
  }
  is_valid_ = true;
  if (header.e_phentsize == sizeof(Elf64_Phdr) &&
      holds(header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
    segments_at_ = header.e_phoff;
    segment_count_ = header.e_phnum;
  }
  if (header.e_shentsize == sizeof(Elf64_Shdr) &&
      holds(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
    sections_at_ = header.e_shoff;
    section_count_ = header.e_shnum;
  }
}

bool ElfFile::holds(uint64_t offset, uint64_t size_bytes) const {
  return offset <= bytes_.size() && size_bytes <= bytes_.size() - offset;
}

bool ElfFile::has_segments(const void* headers, uint64_t count) const {
  return count == segment_count_ &&
         std::memcmp(bytes_.data() + segments_at_, headers, count * sizeof(Elf64_Phdr)) == 0;
}

bool ElfFile::read_section(uint64_t index, Elf64_Shdr& section) const {
  if (index >= section_count_) return false;
  std::memcpy(&section, bytes_.data() + sections_at_ + index * sizeof section, sizeof section);
  return section.sh_type == SHT_NOBITS || holds(section.sh_offset, section.sh_size);
}

ElfFile::SymbolTable ElfFile::symbol_table(uint64_t index) const {
  Elf64_Shdr symbols;
  Elf64_Shdr strings;
  if (!read_section(index, symbols) ||
      (symbols.sh_type != SHT_SYMTAB && symbols.sh_type != SHT_DYNSYM) ||
      symbols.sh_entsize != sizeof(Elf64_Sym) || !read_section(symbols.sh_link, strings) ||
      strings.sh_type != SHT_STRTAB || strings.sh_size == 0 ||
      bytes_[strings.sh_offset + strings.sh_size - 1] != std::byte{0}) {
    return {};
  }
  return {.symbols = bytes_.data() + symbols.sh_offset,
          .count = symbols.sh_size / sizeof(Elf64_Sym),
          .strings = reinterpret_cast<const char*>(bytes_.data() + strings.sh_offset),
          .strings_size_bytes = strings.sh_size};
}

bool ElfFile::read_symbol(const SymbolTable& table, uint64_t index, Symbol& symbol) {
  Elf64_Sym found;
  std::memcpy(&found, table.symbols + index * sizeof found, sizeof found);
  if (found.st_name == 0 || found.st_name >= table.strings_size_bytes) return false;
  const auto type = ELF64_ST_TYPE(found.st_info);
  const bool is_defined =
      found.st_shndx != SHN_UNDEF && found.st_shndx != SHN_ABS && type != STT_TLS;
  symbol = {.name = table.strings + found.st_name,
            .address = found.st_value,
            .size_bytes = found.st_size,
            .is_function = is_defined && type == STT_FUNC,
            .is_defined = is_defined};
  return true;
}

}  // namespace rgpu::loader
