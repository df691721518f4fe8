// Device memory on the heap, and kernels run from PTX text: what the interpreter's tests stand on.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/cuda/emulated/ptx_run.h"

namespace rgpu::server::ptx {

class HeapMemory : public Memory {
 public:
  ~HeapMemory() override {
    for (const auto& [begin, block] : blocks_)
      ::operator delete(block.second, std::align_val_t{256});
  }
  Interval find(uint64_t address) const override {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return {};
    const auto& [begin, block] = *std::prev(after);
    return address < begin + block.first ? Interval{begin, begin + block.first} : Interval{};
  }
  Result<uint64_t> allocate(uint64_t size_bytes, uint64_t) override {
    if (size_bytes > (uint64_t{1} << 30)) return Status(Code::kExhausted, "too much for a test");
    const std::lock_guard lock(mutex_);
    void* memory = ::operator new(size_bytes, std::align_val_t{256});
    const auto address = reinterpret_cast<uint64_t>(memory);
    blocks_[address] = {size_bytes, memory};
    return address;
  }
  bool free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return false;
    ::operator delete(found->second.second, std::align_val_t{256});
    blocks_.erase(found);
    ++epoch_;
    return true;
  }
  uint64_t epoch() const override {
    const std::lock_guard lock(mutex_);
    return epoch_;
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, std::pair<uint64_t, void*>> blocks_;
  uint64_t epoch_ = 0;
};

// An array in device memory.
template <typename T>
class DeviceArray {
 public:
  DeviceArray(HeapMemory& memory, std::vector<T> values) : memory_(memory), size_(values.size()) {
    address_ = *memory.allocate(std::max<size_t>(size_, 1) * sizeof(T), 16);
    std::copy(values.begin(), values.end(), data());
  }
  DeviceArray(HeapMemory& memory, size_t size) : DeviceArray(memory, std::vector<T>(size)) {}
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { memory_.free(address_); }
  [[nodiscard]] uint64_t address() const { return address_; }
  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(address_); }
  T& operator[](size_t i) const { return data()[i]; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  HeapMemory& memory_;
  size_t size_;
  uint64_t address_ = 0;
};

class PtxTest : public testing::Test {
 protected:
  // The text may lack its head.
  std::shared_ptr<Module> load(const std::string& text) {
    const std::string whole = text.find(".version") == std::string::npos
                                  ? ".version 9.0\n.target sm_89\n.address_size 64\n" + text
                                  : text;
    Result<std::shared_ptr<Module>> module = Module::load(whole, {.memory = &memory_});
    EXPECT_TRUE(module) << module.error().to_string();
    return module ? *module : nullptr;
  }

  struct Shape {
    std::array<uint32_t, 3> grid = {1, 1, 1};
    std::array<uint32_t, 3> block = {1, 1, 1};
    uint32_t shared = 0;
    bool cooperative = false;
  };

  template <typename... Arguments>
  Fault launch(const std::shared_ptr<Module>& module, const std::string& name, Shape shape,
               const Arguments&... arguments) {
    if (module == nullptr) return {FaultCode::kInvalidPtx, "no module"};
    Launch launch;
    launch.module = module;
    launch.kernel = module->kernel(name);
    if (launch.kernel == nullptr) return {FaultCode::kInvalidPtx, "no kernel " + name};
    launch.grid = shape.grid;
    launch.block = shape.block;
    launch.dynamic_shared_size_bytes = shape.shared;
    launch.cooperative = shape.cooperative;
    launch.parameters.resize(launch.kernel->parameter_size_bytes);
    size_t index = 0;
    (put(launch, index++, arguments), ...);
    environment_.pool = &pool_;
    environment_.print = [this](std::string_view text) { printed_ += text; };
    return run(launch, environment_);
  }

  template <typename T>
  static void put(Launch& launch, size_t index, const T& value) {
    ASSERT_LT(index, launch.kernel->parameters.size());
    const Parameter& parameter = launch.kernel->parameters[index];
    ASSERT_EQ(parameter.size_bytes, sizeof(T));
    std::memcpy(launch.parameters.data() + parameter.offset_bytes, &value, sizeof(T));
  }

  HeapMemory memory_;
  BlockPool pool_{2};
  RunEnvironment environment_;
  std::string printed_;
};

}  // namespace rgpu::server::ptx
