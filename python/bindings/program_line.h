// Program line: which line of the user's program issues the current op.
//
// Threading: any thread that runs Python, with or without the GIL: a thread that is inside C++ does
//            not change its own frames.
// Cost:      about 20 ns for a line seen before. A new one takes the GIL once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rgpu::backend {

// The innermost frame outside PyTorch and rgpu; in a backward op the pair of that line and the line
// that issued the forward op. 0: no Python frame, or an interpreter whose frames are not known.
[[nodiscard]] uint32_t program_location();
// Folders whose code is not the user's: PyTorch's and rgpu's own. Before the first op.
void set_library_folders(std::vector<std::string> folders);
// "train.py:12 in main"; "" for 0.
[[nodiscard]] std::string describe_program_location(uint32_t location);

}  // namespace rgpu::backend
