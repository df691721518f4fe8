// What a redirected function does when it is first called: opens our libcudart and finds its peer.
//
// Threading: any thread, also several at once for one function.
// Lifetime:  the library stays open until the process ends.
// Errors:    what our library lacks returns cudaErrorNotSupported and names itself once on stderr;
//            without a library for the program's CUDA version the process ends with one line.
#pragma once

#include <cstddef>
#include <initializer_list>

namespace rgpu::loader {

constexpr int kNewestVersion = 13;

// FOLDER/libcudart.so.VERSION; empty if that is too long for a path.
class LibraryPath {
 public:
  LibraryPath(const char* folder, int version);
  [[nodiscard]] const char* text() const { return text_; }

 private:
  char text_[4096] = {};
};

// The folder of this library, which is that of all of ours. Set once, before any thread.
void set_library_folder(const char* folder);
[[nodiscard]] const char* library_folder();

// Writes one line to stderr at once.
void say(std::initializer_list<const char*> words);

}  // namespace rgpu::loader
