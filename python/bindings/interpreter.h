// Interpreter: what rgpu asks of Python: the GIL given up during a wait, Ctrl-C, its exceptions.
//
// Threading: as said at each; installed once, when the extension loads.
#pragma once

namespace rgpu::backend {

// Fills Client::hooks().
void install_interpreter_hooks();

}  // namespace rgpu::backend
