// ProgramFile: where the running program's file is.
//
// Threading: none.
// Lifetime:  its own.
// Errors:    a path that cannot be opened, when there is no such file any more.
#pragma once

#include <link.h>

namespace rgpu::loader {

class ProgramFile {
 public:
  // `program` as dl_iterate_phdr() says it. /proc/self/exe is ld.so's own file where that was
  // started by name with the program as its argument; then the memory map says which it is.
  explicit ProgramFile(const dl_phdr_info& program);

  [[nodiscard]] const char* path() const { return is_exe_ ? kExe : name_; }  // To read it from.
  [[nodiscard]] const char* name() const { return name_; }                   // For messages.

 private:
  static constexpr char kExe[] = "/proc/self/exe";

  bool is_exe_ = false;
  char name_[4096] = {};
};

}  // namespace rgpu::loader
