// What parses, as PTX or as a cubin, has parameters in order, side by side, within the limits.
#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {
namespace {

void check_facts(const Result<ImageFacts>& facts) {
  if (!facts) {
    RGPU_CHECK(!facts.error().message().empty());
    return;
  }
  RGPU_CHECK(facts->kernels.size() <= kSymbolsMax && facts->variables.size() <= kSymbolsMax);
  for (const KernelLayout& kernel : facts->kernels) {
    RGPU_CHECK(!kernel.name.empty() && kernel.name.size() <= kSymbolNameBytesMax);
    uint32_t end = 0;
    for (const KernelParameter& parameter : kernel.parameters) {
      RGPU_CHECK(parameter.offset_bytes >= end);
      end = parameter.offset_bytes + parameter.size_bytes;
    }
    RGPU_CHECK(end == kernel.parameters_size_bytes && end <= kParameterBytesMax);
  }
  for (const Variable& variable : facts->variables) {
    RGPU_CHECK(!variable.name.empty() && variable.name.size() <= kSymbolNameBytesMax);
    RGPU_CHECK(variable.align_bytes != 0);
  }
}

}  // namespace
}  // namespace rgpu::cuda

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  rgpu::cuda::check_facts(rgpu::cuda::facts_of_cubin(std::as_bytes(std::span(data, size_bytes))));
  const auto facts = rgpu::cuda::facts_of_ptx(text);
  rgpu::cuda::check_facts(facts);
  const auto header = rgpu::cuda::header_of_ptx(text);
  RGPU_CHECK(header || !facts);
  if (facts) RGPU_CHECK(header->version == facts->ptx_version && header->arch == facts->arch);
  return 0;
}
