// librgpu_cuda_audit.so: the library of LD_AUDIT.
//
// ld.so loads it with a libc of its own beside the program and calls the la_ functions below. It
// hands every object that is opened after the start to the preload library, before the object's
// constructors run, and gives our libraries for the vendor's names, wherever the program or its
// search path says they are: so nothing of ours has to be loaded into programs that ask for none.
//
// Threading: ld.so calls under its lock, or before there is a second thread.
// Errors:    without the preload library nothing is redirected.

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "cuda_shim/loader/elf_file.h"
#include "cuda_shim/loader/hook.h"

#define RGPU_LA_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using rgpu::loader::ElfFile;
using rgpu::loader::Hook;
using rgpu::loader::MappedFile;
using rgpu::loader::Symbol;

constexpr char kPreloadLibrary[] = "librgpu_cuda_preload.so";
constexpr char kHookName[] = "rgpu_loader_hook";

char g_folder[4096];
// In the program's namespace; its contents are valid once that library's constructor has run.
const Hook* g_hook = nullptr;

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// What may be a library that we have as well: libcuda, libcudart, libcublas, …
bool is_vendor_name(const char* base) {
  return std::strncmp(base, "libcu", 5) == 0 || std::strncmp(base, "libnvidia-ml", 12) == 0;
}

const Hook* find_hook(const link_map& preload) {
  const MappedFile mapped(preload.l_name);
  const Hook* found = nullptr;
  ElfFile(mapped.bytes()).each_symbol([&](const Symbol& symbol) {
    if (symbol.is_defined && std::strcmp(symbol.name, kHookName) == 0) {
      found =
          reinterpret_cast<const Hook*>(rgpu::loader::memory_at(preload.l_addr + symbol.address));
    }
  });
  return found;
}

}  // namespace

RGPU_LA_EXPORT unsigned int la_version(unsigned int version) {
  Dl_info self;
  if (::dladdr(reinterpret_cast<const void*>(&la_version), &self) == 0) return 0;
  const char* slash = std::strrchr(self.dli_fname, '/');
  if (slash == nullptr) return 0;
  std::snprintf(g_folder, sizeof g_folder, "%.*s", static_cast<int>(slash - self.dli_fname),
                self.dli_fname);
  return version < LAV_CURRENT ? version : LAV_CURRENT;
}

// The place of ours for a name of the vendor's; anything else stays as it is.
RGPU_LA_EXPORT char* la_objsearch(const char* name, uintptr_t* /*cookie*/, unsigned int flag) {
  static char replaced[4096];
  const char* base = base_name(name);
  if (flag == LA_SER_ORIG && is_vendor_name(base)) {
    const int length = std::snprintf(replaced, sizeof replaced, "%s/%s", g_folder, base);
    if (length > 0 && static_cast<size_t>(length) < sizeof replaced &&
        ::access(replaced, R_OK) == 0) {
      return replaced;
    }
  }
  return const_cast<char*>(name);
}

RGPU_LA_EXPORT unsigned int la_objopen(link_map* map, Lmid_t space, uintptr_t* /*cookie*/) {
  if (space != LM_ID_BASE || map->l_name == nullptr || map->l_name[0] == 0) return 0;
  if (g_hook == nullptr) {
    if (std::strcmp(base_name(map->l_name), kPreloadLibrary) == 0) g_hook = find_hook(*map);
    return 0;
  }
  auto* redirect = __atomic_load_n(&g_hook->redirect, __ATOMIC_ACQUIRE);
  if (redirect != nullptr) redirect(map->l_name, map->l_addr);
  return 0;  // No calls between objects are watched.
}
