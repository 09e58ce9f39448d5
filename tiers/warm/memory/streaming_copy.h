// Copying into far memory past the caches: lines are written whole, without being read first, and push nothing out.
//
// Threads: any; when the call returns, the bytes are visible to every thread that synchronizes with the caller.
#pragma once

#include "codecs/encoded_block.h"

namespace firn {

// As CopyScattered, with non-temporal stores where the machine has them.
void CopyStreaming(const RunBytes& source, const MutableRunBytes& target);

}  // namespace firn
