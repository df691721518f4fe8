#include "cuda_shim/loader/unredirected_runtime.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "cuda_shim/loader/elf_file.h"
#include "cuda_shim/loader/program_file.h"
#include "cuda_shim/loader/resolver.h"
#include "cuda_shim/loader/static_runtime.h"

namespace rgpu::loader {
namespace {

// The name of an error that every CUDA Runtime has among its constants.
constexpr char kMarker[] = "cudaErrorCudartUnloading";

struct Search {
  uint64_t caller;
  bool is_program = true;  // Of the object that is visited: the first is the program.
  bool found = false;
  bool has_marker = false;
  char path[4096] = {};
};

bool is_inside(const dl_phdr_info& object, uint64_t address) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = object.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && address - object.dlpi_addr - segment.p_vaddr < segment.p_memsz)
      return true;
  }
  return false;
}

bool has_marker(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const Elf64_Phdr& segment = object.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && (segment.p_flags & (PF_R | PF_W)) == PF_R &&
        ::memmem(memory_at(object.dlpi_addr + segment.p_vaddr), segment.p_filesz, kMarker,
                 sizeof kMarker) != nullptr) {
      return true;
    }
  }
  return false;
}

int visit(dl_phdr_info* object, size_t, void* argument) {
  Search& search = *static_cast<Search*>(argument);
  if (!is_inside(*object, search.caller)) {
    search.is_program = false;
    return 0;
  }
  search.found = true;
  search.has_marker = has_marker(*object);
  if (!search.is_program) {
    std::snprintf(search.path, sizeof search.path, "%s", object->dlpi_name);
  } else {
    std::snprintf(search.path, sizeof search.path, "%s", ProgramFile(*object).name());
  }
  return 1;
}

// The runtime as a library of its own: of another CUDA version, or one that was opened by its path.
bool is_dynamic_runtime(const char* path) {
  const char* slash = std::strrchr(path, '/');
  constexpr char kName[] = "libcudart.so";
  return std::strncmp(slash == nullptr ? path : slash + 1, kName, sizeof kName - 1) == 0;
}

const char* remedy(const char* path) {
  const MappedFile mapped(path);
  switch (StaticRuntime::version(ElfFile(mapped.bytes()))) {
    case 0:
      return ": its CUDA Runtime is linked statically and its symbols are stripped: link it with "
             "-cudart shared, or without -s";
    case kNewestVersion:
      return ": its CUDA Runtime is linked statically and was not redirected: start it with "
             "rgpu-run";
    default:
      return ": its CUDA Runtime is older than CUDA 13, which rgpu does not replace: build it with "
             "CUDA 13";
  }
}

}  // namespace

void report_unredirected_runtime(const void* caller) {
  Search search{.caller = reinterpret_cast<uint64_t>(caller)};
  ::dl_iterate_phdr(&visit, &search);
  if (!search.found || !search.has_marker || is_dynamic_runtime(search.path)) return;
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) say({"rgpu: ", search.path, remedy(search.path)});
  if (!search.is_program) return;
  std::fflush(nullptr);
  ::_exit(1);
}

}  // namespace rgpu::loader
