// The few instructions that the loader writes: a jump at a function's entry, and lazy thunks.
//
// A thunk is what an entry jumps to. It jumps through its binding's target, which is at first the
// second half of the thunk itself: that passes the binding to the resolver, which finds the real
// target, notes it in the binding and goes there with every argument register as it was.
//
// Threading: none; the code of a thunk may run in any number of threads.
// Lifetime:  a thunk refers to its binding and to the resolver's slot by distance, for ever.
// Errors:    by return value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rgpu::loader {

// What one redirected function leads to. Read and written by generated code: `target` comes first.
struct Binding {
  const void* target;
  const char* name;
  const char* object;  // The file that holds the function, for messages.
  int version;         // Of the CUDA Runtime that it was part of.
};

constexpr size_t kThunkSizeBytes = 32;

// Overwrites the entry at `code`, `room_bytes` long, with a jump to `target`; false, and nothing
// is written, if no jump that reaches it fits.
[[nodiscard]] bool write_jump(std::byte* code, uint32_t room_bytes, const void* target);
// Writes a thunk and lets the binding's target be its second half. All within 1 MiB.
void write_thunk(std::byte* code, Binding& binding, const void* const& resolver);
// After code has been written there.
void flush_instructions(std::byte* code, size_t size_bytes);
// How far from an entry a thunk may lie so that the shortest jump reaches it.
extern const uint64_t kNearBytes;

// The resolver's address. Its work is done by rgpu_loader_resolve() in resolver.cc.
[[nodiscard]] const void* resolver_entry();

}  // namespace rgpu::loader
