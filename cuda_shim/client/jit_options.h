// JitOptions: the options of cuModuleLoadDataEx, cuLibraryLoadData and cuLinkCreate that mean
// something here: where a program wants to read what was wrong with its image. Of the others, which
// tune a compiler, only the numbers are checked.
//
// Threading: plain values. Lifetime: refers to the program's buffers, which outlive the linker or
//            the call that they were given to.
// Errors:    CUDA_ERROR_INVALID_VALUE.
#pragma once

#include <cstddef>
#include <string_view>

#include "cuda_shim/generated/cuda_api.h"

namespace rgpu::cuda {

class JitOptions {
 public:
  // `values` holds what CUDA calls options' values: pointers, or numbers in their place. Both logs
  // are emptied.
  [[nodiscard]] CUresult read(unsigned count, const CUjit_option* options, void** values);

  [[nodiscard]] bool wants_errors() const noexcept { return errors_.size_bytes != 0; }
  // Cut to the program's buffer, with a NUL; its size option becomes the text's size.
  void write_errors(std::string_view text) noexcept { write(errors_, text); }

 private:
  struct Log {
    char* buffer = nullptr;
    size_t size_bytes = 0;
    void** size_option = nullptr;
  };
  static void write(Log& log, std::string_view text) noexcept;

  Log errors_;
  Log infos_;
};

}  // namespace rgpu::cuda
