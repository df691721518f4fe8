// A test double of libcuda.so.1 with as much as a CUDA Runtime asks for before it wants the
// vendor's private tables.

#include <cstring>

#include "cuda_shim/loader/unredirected_runtime.h"

#define DOUBLE extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kNotSupported = 801;
int succeed() { return 0; }
}  // namespace

DOUBLE int cuInit(unsigned) { return 0; }
DOUBLE int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
DOUBLE int cuGetExportTable(const void** table, const void*) {
  rgpu::loader::report_unredirected_runtime(__builtin_return_address(0));
  *table = nullptr;
  return kNotSupported;
}
DOUBLE int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long, int* status) {
  void* found = reinterpret_cast<void*>(&succeed);
  if (std::strcmp(name, "cuGetExportTable") == 0) {
    found = reinterpret_cast<void*>(&cuGetExportTable);
  } else if (std::strcmp(name, "cuInit") == 0) {
    found = reinterpret_cast<void*>(&cuInit);
  } else if (std::strcmp(name, "cuDriverGetVersion") == 0) {
    found = reinterpret_cast<void*>(&cuDriverGetVersion);
  } else if (std::strncmp(name, "cuGetProcAddress", 16) == 0) {
    found = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  }
  *function = found;
  if (status != nullptr) *status = 0;
  return 0;
}
