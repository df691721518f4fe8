// What the preload library offers to the audit library, which lives in another namespace of ld.so
// and finds it by name in the preload library's file.
//
// Threading: `redirect` is set once, before any other thread; then constant.
// Lifetime:  the process's.
// Errors:    null until the objects that were loaded at start are done.
#pragma once

#include <cstdint>

namespace rgpu::loader {

struct Hook {
  // For an object that was mapped just now and has run nothing yet.
  void (*redirect)(const char* path, uint64_t bias);
};

extern "C" __attribute__((visibility("default"))) Hook rgpu_loader_hook;

}  // namespace rgpu::loader
