#include "cuda_shim/loader/program_file.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_shim/loader/elf_file.h"

namespace rgpu::loader {
namespace {

// The path of the file that is mapped at `address`; empty if there is none.
void find_mapped_path(uint64_t address, char* path, size_t size_bytes) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return;
  char line[4096 + 128];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    // BEGIN-END PERMISSIONS OFFSET DEVICE INODE PATH
    char* rest = nullptr;
    const uint64_t begin = std::strtoull(line, &rest, 16);
    const uint64_t end = *rest == '-' ? std::strtoull(rest + 1, &rest, 16) : 0;
    const char* slash = std::strchr(rest, '/');
    if (slash == nullptr || address < begin || address >= end) continue;
    line[std::strcspn(line, "\n")] = 0;
    std::snprintf(path, size_bytes, "%s", slash);
    break;
  }
  std::fclose(maps);
}

}  // namespace

ProgramFile::ProgramFile(const dl_phdr_info& program) {
  const MappedFile mapped(kExe);
  is_exe_ = ElfFile(mapped.bytes()).has_segments(program.dlpi_phdr, program.dlpi_phnum);
  if (!is_exe_) {
    find_mapped_path(reinterpret_cast<uint64_t>(program.dlpi_phdr), name_, sizeof name_);
  } else if (::readlink(kExe, name_, sizeof name_ - 1) < 0) {
    name_[0] = 0;
  }
}

}  // namespace rgpu::loader
