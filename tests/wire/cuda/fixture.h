// fixture: the compiled files of fixtures/, which make.py there remakes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "wire/cuda/kernel_parameters.h"

namespace rgpu::cuda {

// Ends the test program where there is no such file.
[[nodiscard]] std::vector<std::byte> fixture(const std::string& name);
[[nodiscard]] std::string text_fixture(const std::string& name);
[[nodiscard]] std::vector<std::string> fixture_names(const std::string& ending);

[[nodiscard]] std::string text_of(std::span<const std::byte> bytes);
// By name; null where there is none.
[[nodiscard]] const KernelLayout* find_kernel(const ImageFacts& facts, const std::string& name);
[[nodiscard]] const Variable* find_variable(const ImageFacts& facts, const std::string& name);

}  // namespace rgpu::cuda
