// librgpu_cuda_preload.so: the first library of LD_PRELOAD.
//
// Its constructor runs before every other (-z initfirst) and redirects the static CUDA Runtimes of
// all objects that were loaded at start: the program's, and those of libraries linked to it. What
// is opened later the audit library hands to rgpu_loader_hook. A process that has no static CUDA
// Runtime only pays for looking.

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstring>

#include "cuda_shim/loader/hook.h"
#include "cuda_shim/loader/program_file.h"
#include "cuda_shim/loader/redirect.h"
#include "cuda_shim/loader/resolver.h"

namespace rgpu::loader {
namespace {

// Libraries of the system that every process has.
bool is_system_library(const char* path) {
  constexpr const char* kNames[] = {"libc.so",  "libm.so",       "ld-linux",    "libdl.so",
                                    "librt.so", "libpthread.so", "libgcc_s.so", "libstdc++.so"};
  const char* slash = std::strrchr(path, '/');
  const char* base = slash == nullptr ? path : slash + 1;
  for (const char* name : kNames) {
    if (std::strncmp(base, name, std::strlen(name)) == 0) return true;
  }
  return false;
}

bool is_ours(const char* path) {
  const size_t length = std::strlen(library_folder());
  return std::strncmp(path, library_folder(), length) == 0 && path[length] == '/' &&
         std::strchr(path + length + 1, '/') == nullptr;
}

// Redirects `object`, if the file is the one that it was loaded from.
void redirect_loaded_from(const char* path, const LoadedObject& object, const dl_phdr_info& info) {
  const MappedFile mapped(path);
  const ElfFile file(mapped.bytes());
  if (file.is_valid() && file.has_segments(info.dlpi_phdr, info.dlpi_phnum)) {
    redirect(object, file, library_folder());
  }
}

int visit(dl_phdr_info* info, size_t, void* visited) {
  const bool is_program = !*static_cast<bool*>(visited);
  *static_cast<bool*>(visited) = true;
  const char* path = info->dlpi_name;
  if (is_program) {
    const ProgramFile program(*info);
    redirect_loaded_from(program.path(), {program.name(), info->dlpi_addr, true}, *info);
  } else if (std::strchr(path, '/') != nullptr && !is_system_library(path) && !is_ours(path)) {
    redirect_loaded_from(path, {path, info->dlpi_addr, false}, *info);
  }
  return 0;
}

void redirect_opened(const char* path, uint64_t bias) {
  if (is_system_library(path) || is_ours(path)) return;
  const MappedFile mapped(path);
  const ElfFile file(mapped.bytes());
  if (file.is_valid()) redirect({path, bias, false}, file, library_folder());
}

__attribute__((constructor)) void redirect_loaded() {
  Dl_info self;
  if (::dladdr(reinterpret_cast<const void*>(&redirect_loaded), &self) == 0) return;
  char folder[4096];
  const char* slash = std::strrchr(self.dli_fname, '/');
  const size_t length = slash == nullptr ? 0 : static_cast<size_t>(slash - self.dli_fname);
  if (length == 0 || length >= sizeof folder) return;
  std::memcpy(folder, self.dli_fname, length);
  folder[length] = 0;
  set_library_folder(folder);
  bool visited = false;
  ::dl_iterate_phdr(&visit, &visited);
  __atomic_store_n(&rgpu_loader_hook.redirect, &redirect_opened, __ATOMIC_RELEASE);
}

}  // namespace

Hook rgpu_loader_hook{};

}  // namespace rgpu::loader
