// Lets the functions of a statically linked CUDA Runtime jump to ours, in memory only.
//
// Threading: one caller at a time, while nothing runs in the object yet: before its constructors.
// Lifetime:  what is written stays until the process ends; an object that is closed takes its
//            entries along and leaves its thunks behind.
// Errors:    one line on stderr when a runtime is there but cannot be redirected.
#pragma once

#include <cstdint>

#include "cuda_shim/loader/elf_file.h"

namespace rgpu::loader {

struct LoadedObject {
  const char* name;  // For messages.
  uint64_t bias;     // What is added to the file's addresses.
  bool is_program;   // Or a library.
};

// Nothing happens for an object without a static CUDA Runtime, nor for a library whose runtime is
// of a CUDA version that we have none for; a program's ends it then, with one line, when it is
// called. `libraries` is the folder of ours.
void redirect(const LoadedObject& object, const ElfFile& file, const char* libraries);

}  // namespace rgpu::loader
