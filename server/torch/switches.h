// Numerics switches of the session, put where PyTorch's kernels look for them.
//
// A worker is one session, so that what is process-wide is the session's own. What belongs to a
// thread (denormals) is set again by each thread that runs records.
//
// Threading: apply_switches() while no run executes; flush_denormal_here() on the executing thread.
// Errors:    none: what this PyTorch cannot do (a switch of a library it was built without) stays
// as
//            it is.
#pragma once

#include "wire/switches.h"

namespace rgpu::server {

void apply_switches(const wire::Switches& switches);
// About a nanosecond when the thread's mode is already that.
void flush_denormal_here(bool on);

}  // namespace rgpu::server
