// What libcuda says when a CUDA Runtime that was not redirected asks for the vendor's private
// tables.
//
// Every static cudart does so at its first call. It cannot work over rgpu, and the errors that it
// makes of that name no reason.
//
// Threading: any thread.
// Lifetime:  none.
// Errors:    see below; a caller without such a runtime (nvJitLink asks too) is left alone.
#pragma once

namespace rgpu::loader {

// `caller` is the return address of cuGetExportTable. If it lies in the program, ends the process
// with exit status 1 and one line that says what to do: link the CUDA Runtime dynamically, or do
// not strip. If it lies in a library, says so once and returns; a program may do without that
// library.
void report_unredirected_runtime(const void* caller);

}  // namespace rgpu::loader
