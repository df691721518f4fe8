#include "cuda_shim/loader/resolver.h"

#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cuda_shim/loader/machine_code.h"

namespace rgpu::loader {
namespace {

char g_library_folder[4096];

constexpr int kCudaErrorNotSupported = 801;

int return_not_supported() { return kCudaErrorNotSupported; }

[[noreturn]] void end_process(std::initializer_list<const char*> words) {
  say(words);
  ::_exit(1);
}

void* open_runtime(const Binding& binding) {
  const LibraryPath path(g_library_folder, binding.version);
  if (::access(path.text(), F_OK) != 0) {
    end_process({"rgpu: ", binding.object, " holds the CUDA Runtime of ",
                 binding.version == 12 ? "CUDA 12" : "CUDA 11 or older",
                 ", which rgpu does not replace: build it with CUDA 13"});
  }
  void* library = ::dlopen(path.text(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) end_process({"rgpu: ", ::dlerror()});
  return library;
}

}  // namespace

LibraryPath::LibraryPath(const char* folder, int version) {
  const int length = std::snprintf(text_, sizeof text_, "%s/libcudart.so.%d", folder, version);
  if (length < 0 || static_cast<size_t>(length) >= sizeof text_) text_[0] = 0;
}

void set_library_folder(const char* folder) {
  std::snprintf(g_library_folder, sizeof g_library_folder, "%s", folder);
}

const char* library_folder() { return g_library_folder; }

void say(std::initializer_list<const char*> words) {
  constexpr size_t kWordsMax = 15;
  iovec parts[kWordsMax + 1];
  size_t count = 0;
  for (const char* word : words) {
    if (count == kWordsMax) break;
    parts[count++] = {const_cast<char*>(word), std::strlen(word)};
  }
  char end[] = "\n";
  parts[count++] = {end, 1};
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, parts, static_cast<int>(count));
}

// The target of a redirected function, noted for the next call. Called by the resolver's entry.
extern "C" __attribute__((visibility("hidden"))) const void* rgpu_loader_resolve(
    Binding* binding) noexcept {
  const int saved_errno = errno;
  const void* target = ::dlsym(open_runtime(*binding), binding->name);
  if (target == nullptr) {
    say({"rgpu: ", binding->name, " is not supported"});
    target = reinterpret_cast<const void*>(&return_not_supported);
  }
  __atomic_store_n(&binding->target, target, __ATOMIC_RELEASE);
  errno = saved_errno;
  return target;
}

}  // namespace rgpu::loader
