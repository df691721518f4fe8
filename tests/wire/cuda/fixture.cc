#include "tests/wire/cuda/fixture.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace rgpu::cuda {

std::string text_fixture(const std::string& name) {
  std::ifstream file(std::string(RGPU_FIXTURES) + "/" + name, std::ios::binary);
  RGPU_CHECK(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::byte> fixture(const std::string& name) {
  const std::string text = text_fixture(name);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> fixture_names(const std::string& ending) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(RGPU_FIXTURES)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(ending)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const KernelLayout* find_kernel(const ImageFacts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts.kernels, name, &KernelLayout::name);
  return found == facts.kernels.end() ? nullptr : &*found;
}

const Variable* find_variable(const ImageFacts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts.variables, name, &Variable::name);
  return found == facts.variables.end() ? nullptr : &*found;
}

}  // namespace rgpu::cuda
