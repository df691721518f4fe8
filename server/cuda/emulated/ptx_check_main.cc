// rgpu-ptx-check FILE...: which kernels of PTX files the emulated device runs, and why it does not
// run the others. Several files are linked, as with -rdc=true. Ends with 1 if one cannot run.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "server/cuda/emulated/ptx_module.h"

namespace rgpu::server::ptx {
namespace {

// Room for a module's variables; nothing is run here.
class VariableMemory : public Memory {
 public:
  Interval find(uint64_t) const override { return {}; }
  Result<uint64_t> allocate(uint64_t size_bytes, uint64_t) override {
    void* memory = std::aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096);
    if (memory == nullptr) return Status(Code::kExhausted, "out of memory");
    return reinterpret_cast<uint64_t>(memory);
  }
  bool free(uint64_t address) override {
    std::free(reinterpret_cast<void*>(address));
    return true;
  }
  uint64_t epoch() const override { return 0; }
};

int check(const std::vector<std::string>& texts) {
  VariableMemory memory;
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto module = Module::load(views, {.memory = &memory});
  if (!module) {
    std::fprintf(stderr, "%s\n", module.error().message().c_str());
    return 1;
  }
  int result = 0;
  for (const Kernel& kernel : (*module)->kernels()) {
    if (!kernel.error.empty()) {
      std::printf("no   %s\n", kernel.error.c_str());
      result = 1;
      continue;
    }
    std::printf("yes  %s: %u registers, %u bytes of parameters, %u shared, %u local\n",
                kernel.name.c_str(), kernel.register_count, kernel.parameter_size_bytes,
                kernel.static_shared_size_bytes, kernel.local_size_bytes);
  }
  return result;
}

}  // namespace
}  // namespace rgpu::server::ptx

int main(int argument_count, char** arguments) {
  std::vector<std::string> texts;
  for (int i = 1; i < argument_count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", arguments[i]);
      return 2;
    }
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (texts.empty()) {
    std::fprintf(stderr, "usage: rgpu-ptx-check FILE...\n");
    return 2;
  }
  return rgpu::server::ptx::check(texts);
}
