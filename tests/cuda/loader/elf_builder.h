// ElfBuilder: a small ELF file with a symbol table, for tests.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace rgpu::loader {

class ElfBuilder {
 public:
  // A function of .text unless `type` says otherwise.
  ElfBuilder& add(const std::string& name, uint64_t address, uint64_t size_bytes,
                  unsigned char type = STT_FUNC, unsigned char binding = STB_GLOBAL) {
    symbols_.push_back({.st_name = static_cast<Elf64_Word>(names_.size()),
                        .st_info = static_cast<unsigned char>(ELF64_ST_INFO(binding, type)),
                        .st_other = 0,
                        .st_shndx = 1,
                        .st_value = address,
                        .st_size = size_bytes});
    names_ += name;
    names_ += '\0';
    return *this;
  }
  ElfBuilder& add_undefined(const std::string& name) {
    add(name, 0, 0);
    symbols_.back().st_shndx = SHN_UNDEF;
    return *this;
  }

  [[nodiscard]] std::vector<std::byte> build(Elf64_Word table_type = SHT_SYMTAB) const {
    const uint64_t symbols_at = sizeof(Elf64_Ehdr);
    const uint64_t names_at = symbols_at + symbols_.size() * sizeof(Elf64_Sym);
    const uint64_t sections_at = names_at + names_.size();
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
#if defined(__aarch64__)
    header.e_machine = EM_AARCH64;
#else
    header.e_machine = EM_X86_64;
#endif
    header.e_shoff = sections_at;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 3;
    Elf64_Shdr sections[3] = {};
    sections[1].sh_type = table_type;
    sections[1].sh_offset = symbols_at;
    sections[1].sh_size = names_at - symbols_at;
    sections[1].sh_entsize = sizeof(Elf64_Sym);
    sections[1].sh_link = 2;
    sections[2].sh_type = SHT_STRTAB;
    sections[2].sh_offset = names_at;
    sections[2].sh_size = names_.size();
    std::vector<std::byte> bytes;
    append(bytes, &header, sizeof header);
    append(bytes, symbols_.data(), symbols_.size() * sizeof(Elf64_Sym));
    append(bytes, names_.data(), names_.size());
    append(bytes, sections, sizeof sections);
    return bytes;
  }

 private:
  static void append(std::vector<std::byte>& bytes, const void* data, size_t size_bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size_bytes);
  }

  std::vector<Elf64_Sym> symbols_ = {Elf64_Sym{}};
  std::string names_ = std::string(1, '\0');
};

}  // namespace rgpu::loader
