#include "server/cuda/real/driver_symbols.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace rgpu::server::cuda {

Result<DriverSymbols> load_driver_symbols() {
  const char* const named = std::getenv("RGPU_CUDA_DRIVER_LIBRARY");
  const bool is_named = named != nullptr && *named != '\0';
  const std::string path = is_named ? named : "libcuda.so.1";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return Status(Code::kUnimplemented,
                  "no CUDA driver: " + std::string(why != nullptr ? why : path.c_str()));
  }
  // A server that is started under rgpu-run would find ours, which asks a server.
  if (!is_named && dlsym(library, "rgpu_api_calls") != nullptr) {
    return Status(Code::kUnimplemented, "the libcuda.so.1 that is found is rgpu's own");
  }
  DriverSymbols symbols;
#define RGPU_FIND(name, symbol, parameters) \
  symbols.name = reinterpret_cast<decltype(symbols.name)>(dlsym(library, #symbol));
  RGPU_DRIVER_SYMBOLS(RGPU_FIND)
  RGPU_DRIVER_SYMBOLS_OPTIONAL(RGPU_FIND)
#undef RGPU_FIND
#define RGPU_CHECK_FOUND(name, symbol, parameters)                              \
  if (symbols.name == nullptr) {                                                \
    return Status(Code::kUnimplemented, path + " has no " #symbol               \
                                               ": CUDA 11.4 is the oldest "     \
                                               "driver that this server uses"); \
  }
  RGPU_DRIVER_SYMBOLS(RGPU_CHECK_FOUND)
#undef RGPU_CHECK_FOUND
  return symbols;
}

}  // namespace rgpu::server::cuda
