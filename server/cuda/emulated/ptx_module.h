// Module: PTX text, decoded once and ready to run on the emulated device.
//
// Threading: a loaded module does not change; any thread may read and run it.
// Lifetime:  a module allocates its .global and .const variables from `memory` and frees them when
//            it is destroyed: `memory` outlives it. Kernels and variables live as long as it does.
// Errors:    what is not PTX fails load(), with opcode or directive, function and line. What is PTX
//            but not emulated makes the kernels unusable that reach it (Kernel::error), no others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/status.h"

namespace rgpu::server::ptx {

// What device memory looks like. Addresses are addresses of this process. Thread-safe.
class Memory {
 public:
  struct Interval {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  virtual ~Memory() = default;
  // The live allocation that holds `address`; empty if there is none.
  [[nodiscard]] virtual Interval find(uint64_t address) const = 0;
  virtual Result<uint64_t> allocate(uint64_t size_bytes, uint64_t alignment) = 0;
  virtual bool free(uint64_t address) = 0;  // False: not the start of an allocation.
  // Changes whenever an allocation is freed: intervals found before are then stale.
  [[nodiscard]] virtual uint64_t epoch() const = 0;
};

struct Parameter {
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct Function;  // Decoded code: ptx_code.h.

struct Kernel {
  std::string name;
  std::vector<Parameter> parameters;
  uint32_t parameter_size_bytes = 0;
  uint32_t static_shared_size_bytes = 0;
  uint32_t local_size_bytes = 0;                       // Per thread; recursion comes on top.
  uint32_t const_size_bytes = 0;                       // Of the module.
  uint32_t register_count = 16;                        // Per thread, estimated.
  uint32_t threads_max = 1024;                         // .maxntid
  std::array<uint32_t, 3> required_block = {0, 0, 0};  // .reqntid; zeros: any
  uint32_t ptx_version = 0;                            // 75 for `.version 7.5`
  uint32_t binary_version = 0;                         // 75 for `.target sm_75`
  std::string error;  // Why it cannot run (an opcode that is not emulated); empty if it can.

  const Function* function = nullptr;
  std::vector<uint32_t> shared_offsets;  // Of the module's shared variables, for this kernel.
};

struct Variable {
  std::string name;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  bool is_constant = false;
  bool is_managed = false;
};

struct LoadOptions {
  uint32_t compute_capability = 89;
  Memory* memory = nullptr;
};

struct Program;  // All decoded functions of a module: ptx_code.h.

class Module {
 public:
  static Result<std::shared_ptr<Module>> load(std::string_view text, const LoadOptions& options);
  // Several texts (-rdc=true), linked: .extern finds .visible and .weak of the others.
  static Result<std::shared_ptr<Module>> load(std::span<const std::string_view> texts,
                                              const LoadOptions& options);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module();

  [[nodiscard]] const Kernel* kernel(std::string_view name) const;
  [[nodiscard]] const Variable* variable(std::string_view name) const;
  [[nodiscard]] const std::vector<Kernel>& kernels() const { return kernels_; }
  [[nodiscard]] const std::vector<Variable>& variables() const { return variables_; }
  [[nodiscard]] const Program& program() const { return *program_; }
  [[nodiscard]] Memory& memory() const { return *memory_; }

 private:
  friend class ModuleBuilder;
  explicit Module(Memory* memory);

  Memory* memory_;
  std::unique_ptr<Program> program_;
  std::vector<Kernel> kernels_;
  std::vector<Variable> variables_;
  std::vector<uint64_t> allocations_;
};

}  // namespace rgpu::server::ptx
