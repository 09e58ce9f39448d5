// What the process asks of the system before anything else.
//
// Threads: call it before others are started.
#pragma once

#include <cstdint>

namespace firn {

// Broken pipes and files that may not grow become errors where they are written instead of the process's end, and as
// many descriptors may be open as the system allows, up to 1 Mi.
void PrepareProcess();

// How many descriptors the process may have open.
uint64_t DescriptorsMax();

}  // namespace firn
